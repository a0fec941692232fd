"""Re-exports `pai_sdk.run.store.stored_checkpoints`, under the path that users import."""

from pai_sdk.run.store.stored_checkpoints import *  # noqa: F403
from pai_sdk.run.store.stored_checkpoints import __all__ as __all__
