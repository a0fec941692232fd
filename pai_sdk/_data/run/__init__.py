"""Runs: the folder with a URI that a training leaves behind."""
