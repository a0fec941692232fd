"""The estimators, and what they are described with, where users of alipai look for them."""

from pai_sdk._core.names.lazy_names import lazy_names

# Loaded when first asked for: some need pydantic, and an estimator needs it only when it makes a plan.
__all__, __getattr__, __dir__ = lazy_names(__name__)
