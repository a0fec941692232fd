"""Bodies of DLC that are not of jobs: templates, TensorBoards, instance types and others."""
