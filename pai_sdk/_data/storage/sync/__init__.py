"""Moving folders between stores: one-way syncs, uploads and downloads."""
