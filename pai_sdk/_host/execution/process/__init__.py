"""Jobs as plain processes of this machine."""
