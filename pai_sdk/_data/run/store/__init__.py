"""Run stores: the places of runs and data, and the checkpoints in them."""
