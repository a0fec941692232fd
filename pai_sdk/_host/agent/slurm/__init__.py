"""The part of pai_sdk on the nodes of a Slurm cluster: one supervised instance a task."""
