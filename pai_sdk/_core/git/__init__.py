"""One state of a git repository, for clients and services."""
