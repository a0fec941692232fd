"""Settings and credentials."""
