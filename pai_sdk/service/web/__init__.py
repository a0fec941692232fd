"""The page of runs, for a browser on the machine that serves it: `pai-sdk ui`."""
