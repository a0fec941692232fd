"""Contents of objects in an external store."""
