"""Explains why a job failed, by reasons and tracebacks from its logs."""
