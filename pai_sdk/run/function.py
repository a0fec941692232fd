"""Re-exports `pai_sdk.run.functions.function_run`, under the path that users import."""

from pai_sdk.run.functions.function_run import *  # noqa: F403
from pai_sdk.run.functions.function_run import __all__ as __all__
