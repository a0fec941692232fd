"""Executors, which run jobs on hosts of their user: the same contract in every place."""
