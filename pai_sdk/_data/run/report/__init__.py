"""Reporting from inside a job: metrics, checkpoints, preemption. Standard library only."""

from pai_sdk._data.run.report.session import *  # noqa: F403
from pai_sdk._data.run.report.session import __all__ as __all__
