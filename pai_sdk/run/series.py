"""Re-exports `pai_sdk.run.events.series`, under the path that users import."""

from pai_sdk.run.events.series import *  # noqa: F403
from pai_sdk.run.events.series import __all__ as __all__
