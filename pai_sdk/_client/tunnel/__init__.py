"""Connections into running instances of jobs: programs, ports and files, over one WebSocket of the service."""
