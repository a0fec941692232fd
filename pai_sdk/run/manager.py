"""Re-exports `pai_sdk.run.watch.manager`, under the path that users import."""

from pai_sdk.run.watch.manager import *  # noqa: F403
from pai_sdk.run.watch.manager import __all__ as __all__
