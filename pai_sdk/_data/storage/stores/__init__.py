"""One `Store` for each kind of storage: a local folder, OSS, fsspec file systems."""
