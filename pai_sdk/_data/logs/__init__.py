"""The logs of instances: lines by number, by byte and by time, search, and one order for all instances."""
