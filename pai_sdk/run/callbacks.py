"""Re-exports `pai_sdk.run.report.callbacks`, under the path that users import."""

from pai_sdk.run.report.callbacks import *  # noqa: F403
from pai_sdk.run.report.callbacks import __all__ as __all__
