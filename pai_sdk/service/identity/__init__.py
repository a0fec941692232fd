"""Who uses a service: users and their keys, workspaces and their members, and what each may do."""
