"""Run stores: the places of runs and data, and the checkpoints in them."""

from pai_sdk._core.names.lazy_names import lazy_names

# The stores need storage; modules beside them need the standard library only.
__all__, __getattr__, __dir__ = lazy_names(__name__)
