"""Functions as trainings, in a process of their own or as a job."""

from pai_sdk._core.names.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
