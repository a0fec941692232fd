"""Metrics for Prometheus and structured logs, for the operators of a service."""
