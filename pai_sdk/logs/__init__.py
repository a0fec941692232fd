"""The logs of instances: their lines by number, by byte and by time, searched, and all instances in one order."""
