"""Re-exports `pai_sdk.run.report.preemption`, under the path that users import."""

from pai_sdk.run.report.preemption import *  # noqa: F403
from pai_sdk.run.report.preemption import __all__ as __all__
