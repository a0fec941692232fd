"""What every package may use: retry, endpoints, connections, paths."""
