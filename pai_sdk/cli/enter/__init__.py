"""Commands that enter running jobs: programs, shells, ports and files."""
