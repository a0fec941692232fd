"""Reporting from inside a job: metrics, checkpoints, preemption. Standard library only."""
