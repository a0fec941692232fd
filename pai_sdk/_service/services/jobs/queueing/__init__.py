"""Decides which job starts next, by quotas, fair share and priority."""
