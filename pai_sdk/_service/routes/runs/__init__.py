"""The HTTP interface of runs: lists, curves, comparisons, logs and one stream of what changes."""
