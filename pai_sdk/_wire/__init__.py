"""The bodies of requests and responses of the HTTP API, one model each, for client and service."""
