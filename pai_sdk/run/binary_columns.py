"""Re-exports `pai_sdk.run.events.binary_columns`, under the path that users import."""

from pai_sdk.run.events.binary_columns import *  # noqa: F403
from pai_sdk.run.events.binary_columns import __all__ as __all__
