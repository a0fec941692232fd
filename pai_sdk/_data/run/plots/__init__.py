"""Curves of runs: down-sampling, smoothing, comparison and drawing."""
