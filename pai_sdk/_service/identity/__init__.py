"""Users and their keys, workspaces and their members, and the rights of each."""
