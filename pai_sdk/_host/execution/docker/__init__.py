"""Jobs as containers of a Docker engine on this machine."""
