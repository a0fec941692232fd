"""What a job looks like in Jupyter."""
