"""Describes jobs for the page: what they run, why they failed."""
