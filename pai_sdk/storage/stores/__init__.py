"""One `Store` for each kind of place: a local folder, OSS, fsspec file systems."""
