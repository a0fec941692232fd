"""What takes a request and runs it."""
