"""Displays of a job during a wait, in a terminal and in a notebook."""
