"""Re-exports `pai_sdk.run.mindinsight.summary_watcher`, under the path that users import."""

from pai_sdk.run.mindinsight.summary_watcher import *  # noqa: F403
from pai_sdk.run.mindinsight.summary_watcher import __all__ as __all__
