"""Entry into the containers of a job: the programs, ports and files that a tunnel reaches, by the engine's API."""
