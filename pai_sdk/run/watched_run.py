"""Re-exports `pai_sdk.run.watch.watched_run`, under the path that users import."""

from pai_sdk.run.watch.watched_run import *  # noqa: F403
from pai_sdk.run.watch.watched_run import __all__ as __all__
