"""Files in OSS and on this machine: names, clients, transfers."""
