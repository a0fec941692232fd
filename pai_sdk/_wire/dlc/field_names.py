"""The fields of the body of CreateJob by their names in Python and on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pai_sdk._wire.base import wire_name
from pai_sdk._wire.body import Body
from pai_sdk._wire.dlc import job_specs, jobs, pod_specs, settings, sources

__all__ = ["BODY_MODELS", "PYTHON_NAMES", "WIRE_NAMES", "by_python_name", "python_path"]

BODY_MODELS = {
    name: model
    for module in (jobs, job_specs, pod_specs, settings, sources)
    for name in module.__all__
    if isinstance(model := vars(module)[name], type) and issubclass(model, Body)
}
"""The models of the body and of its parts, by name."""

PYTHON_NAMES = {
    info.alias or wire_name(name): name
    for model in BODY_MODELS.values()
    for name, info in model.model_fields.items()
}
"""Name on the wire: name in Python."""

WIRE_NAMES = {name: wire for wire, name in PYTHON_NAMES.items()}
"""Name in Python: name on the wire, for messages; some fields of different models differ in its spelling only."""


def by_python_name(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields by their names in Python; unknown names stay, and fields within fields are unchanged."""
    return {PYTHON_NAMES.get(name, name): value for name, value in fields.items()}


def python_path(path: str) -> str:
    """Returns the path of a field in Python's names; unknown ones stay.

    Example:
        >>> python_path("UserVpc.ExtendedCIDRs")
        'user_vpc.extended_cidrs'
    """
    return ".".join(PYTHON_NAMES.get(step, step) for step in path.split("."))
