"""Commands for OpenSSH and the programs that use it: `ssh`, `ssh-config` and `ssh-proxy`."""
