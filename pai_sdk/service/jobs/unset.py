"""The forms in which clients write a field that is not set: left out, null, `{}`, `[]` or an empty text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel

__all__ = ["without_unset"]

_Models = tuple[type[BaseModel], ...]


@dataclass(frozen=True)
class _Field:
    """What is to be known of a field: the models of what is in it, and which empty values say nothing."""

    models: _Models
    is_required: bool
    takes_a_container: bool


# A client that writes all of its fields says nothing with an empty one that is not known here.
_UNKNOWN = _Field((), is_required=False, takes_a_container=True)


def without_unset(body: Any, model: type[BaseModel]) -> Any:
    """A body without the fields that are not set, however that is written.

    An empty text is left where the field takes any text: there it is a value. What is inside a free mapping, such
    as `Environments`, is left as it is, but for null.

    Args:
        body: a JSON value as it came.
        model: what it is validated as afterwards.

    Example:
        >>> from pai_sdk.schemas.request import TrainingJobRequest
        >>> without_unset({"TrainingJobName": "a", "UserVpc": {"ExtendedCIDRs": []}}, TrainingJobRequest)
        {'TrainingJobName': 'a'}
    """
    return _cleaned(body, (model,))


def _cleaned(value: Any, models: _Models) -> Any:
    if isinstance(value, list):
        return [_cleaned(item, models) for item in value] if models else value
    if not isinstance(value, dict):
        return value
    if not models:
        return {key: item for key, item in value.items() if item is not None}
    fields = _fields_of(models)
    kept = {}
    for key, item in value.items():
        field = fields.get(key, _UNKNOWN)
        cleaned = item if field is _UNKNOWN else _cleaned(item, field.models)
        if not _is_unset(cleaned, field):
            kept[key] = cleaned
    return kept


def _is_unset(value: Any, field: _Field) -> bool:
    if value is None:
        return True
    if isinstance(value, (dict, list)):
        return not value and not field.is_required
    return value == "" and field.takes_a_container and not field.is_required


@cache
def _fields_of(models: _Models) -> dict[str, _Field]:
    return {
        field.alias or name: _Field(
            _models_in(field.annotation), field.is_required(), _takes_a_container(field.annotation)
        )
        for model in models
        for name, field in model.model_fields.items()
    }


def _takes_a_container(annotation: Any) -> bool:
    if get_origin(annotation) in (dict, list) or _models_in(annotation):
        return True
    return any(_takes_a_container(part) for part in get_args(annotation))


def _models_in(annotation: Any) -> _Models:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for part in get_args(annotation) for model in _models_in(part))
