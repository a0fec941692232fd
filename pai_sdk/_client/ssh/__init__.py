"""An SSH server on this machine for one job: sessions, SFTP and forwards become streams of a tunnel."""
