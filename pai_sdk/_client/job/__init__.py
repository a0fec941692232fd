"""A job, from its description to its result."""

from __future__ import annotations

from typing import Any

from pai_sdk._core.names.lazy_names import lazy_names
from pai_sdk.alipai.unsupported import unsupported

# Loaded when first asked for: Estimator and Processor need no pydantic until they make a plan.
__all__, _load = lazy_names(__name__)

# Of alipai's, and left out: what each is, and what replaces it.
_UNSUPPORTED = {
    "LocalTrainingJob": "TrainingJob, also for local jobs: fit() returns it",
}


def __getattr__(name: str) -> Any:
    if name in _UNSUPPORTED:
        return unsupported(f"{__name__}.{name}", _UNSUPPORTED[name])
    return _load(name)
