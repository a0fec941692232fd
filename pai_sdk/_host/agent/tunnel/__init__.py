"""The tunnel into a running instance: frames, a link that survives cuts, streams, and their server."""
