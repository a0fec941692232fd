"""The page of runs, for a browser: `pai-sdk ui`, and the page of a service."""
