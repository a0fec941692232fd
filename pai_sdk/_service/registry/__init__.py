"""Algorithms and models that users register on the service."""
