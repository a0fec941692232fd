"""Re-exports `pai_sdk.run.functions.runner`, under the path that users import."""

from pai_sdk.run.functions.runner import *  # noqa: F403
from pai_sdk.run.functions.runner import __all__ as __all__
