"""Helpers for every package: retry, endpoints, connections, paths."""
