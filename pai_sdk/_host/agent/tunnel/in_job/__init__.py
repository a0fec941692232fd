"""Functions of a tunnel that run as processes in the job's view: files and sockets."""
