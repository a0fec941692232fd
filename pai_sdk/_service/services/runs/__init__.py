"""The runs of jobs and folders, and the responses about them."""
