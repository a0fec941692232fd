"""Tunnels into the instances of jobs."""
