"""The object store of the service: the OSS wire on plain files and SQLite."""
