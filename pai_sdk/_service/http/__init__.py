"""The HTTP side of the service: connections, authentication, routes."""
