"""The data of the wire, without I/O: strict when written, tolerant when read."""
