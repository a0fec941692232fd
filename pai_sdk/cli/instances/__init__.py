"""The commands about the instances of running jobs: top, exec."""
