"""Re-exports `pai_sdk.run.report.checkpoints`, under the path that users import."""

from pai_sdk.run.report.checkpoints import *  # noqa: F403
from pai_sdk.run.report.checkpoints import __all__ as __all__
