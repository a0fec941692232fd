"""Event files: the writer that jobs use, and the reader of files written for TensorBoard or MindSpore."""
