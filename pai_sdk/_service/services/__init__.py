"""What the service does, one module for each resource; routes and background call it."""
