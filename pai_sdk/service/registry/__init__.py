"""What users register on the service: algorithms, models."""
