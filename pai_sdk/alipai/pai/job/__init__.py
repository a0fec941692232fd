"""A job, where users of alipai look for it."""

from __future__ import annotations

from typing import Any

from pai_sdk._core.names.lazy_names import lazy_names
from pai_sdk.alipai.unsupported import unsupported_names

__all__, _load, __dir__ = lazy_names(__name__)
_unsupported = unsupported_names(
    __name__, ("LocalTrainingJob",), "TrainingJob, also for local jobs: fit() returns it"
)


def __getattr__(name: str) -> Any:
    return _unsupported(name) if name == "LocalTrainingJob" else _load(name)
