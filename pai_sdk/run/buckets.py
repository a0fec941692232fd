"""Re-exports `pai_sdk.run.plots.buckets`, under the path that users import."""

from pai_sdk.run.plots.buckets import *  # noqa: F403
from pai_sdk.run.plots.buckets import __all__ as __all__
