"""Registered models, and the recipes that train them."""

import pai_sdk as _  # noqa: F401 # first, to wait for a thread that is importing it
from pai_sdk._core.names.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
