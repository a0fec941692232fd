"""Re-exports `pai_sdk.run.mindinsight.event_data`, under the path that users import."""

from pai_sdk.run.mindinsight.event_data import *  # noqa: F403
from pai_sdk.run.mindinsight.event_data import __all__ as __all__
