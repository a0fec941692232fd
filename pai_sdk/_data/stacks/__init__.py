"""Stacks of the processes of a job: what they are, and which rank is odd. Standard library only, without I/O."""
