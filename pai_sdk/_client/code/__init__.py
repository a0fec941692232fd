"""From a folder or a git repository to the code of a job."""
