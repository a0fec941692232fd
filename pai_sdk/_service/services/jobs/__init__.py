"""The jobs of the service: creation, scheduling, files, logs, metrics."""
