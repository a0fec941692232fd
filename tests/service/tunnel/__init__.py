"""Tunnels into running jobs, through the service."""
