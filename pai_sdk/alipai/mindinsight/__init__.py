"""MindInsight's data manager and summary watcher, for code written for them."""

from pai_sdk._core.names.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
