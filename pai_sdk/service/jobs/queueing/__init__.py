"""The queue: which job begins next, by quotas, fair share and priority."""
