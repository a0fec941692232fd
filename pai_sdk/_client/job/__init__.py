"""A job, from its description to its result."""

from pai_sdk._core.names.lazy_names import lazy_names

# Loaded when first used: Estimator and Processor need no pydantic until they make a plan.
__all__, __getattr__, __dir__ = lazy_names(__name__)
