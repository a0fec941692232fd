"""A job, from its description to its result."""
