"""Runs of pipelines as they are stored: their records, and what pages display of them."""
