"""The commands for a service on this machine."""
