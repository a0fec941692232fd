"""Contents of objects in a store elsewhere."""
