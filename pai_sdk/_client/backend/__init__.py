"""Backends: they take a request and run it."""
