"""Requests that Hypothesis makes up: every field of every model, filled with what its type allows."""

from __future__ import annotations

import types
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel

from pai_sdk._wire.pai.compute import InstanceSpec
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.roles import Mount, Role, StartAfter
from pai_sdk._wire.pai.spec import InputChannel, OssLocation, OutputChannel

__all__ = ["models", "requests"]

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBERS = st.integers(0, 2**31 - 1)
JSON = st.dictionaries(TEXT, st.one_of(TEXT, NUMBERS, st.booleans()), min_size=1, max_size=3)
_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: NUMBERS,
    bool: st.booleans(),
    float: st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    Any: TEXT,
}
# Roles name each other, and a mount has a path of its own.
_ROLES = st.builds(
    lambda image, command, count, spec: [
        Role(
            name="PS", count=count, is_chief=False, counts_for_success=False, instance_spec=InstanceSpec(cpu=spec)
        ),
        Role(
            name="Worker",
            image=image,
            command=[command],
            ecs_spec=spec,
            restart_policy="Never",
            start_after=[StartAfter(role="PS", phase="Running", min_count=1)],
        ),
    ],
    TEXT,
    TEXT,
    st.integers(1, 9),
    TEXT,
)
_MOUNTS = st.builds(
    lambda access, options: [Mount(path="/mnt/data", uri="oss://bucket/data/", access=access, options=options)],
    st.sampled_from(["RO", "RW"]),
    TEXT,
)
# Of these exactly one may be given.
_EITHER = {InputChannel: ("input_uri", "dataset_id"), OutputChannel: ("output_uri", "dataset_id")}


def models(model: type[BaseModel], *, full: bool = False) -> st.SearchStrategy[Any]:
    """Instances of a model of the wire.

    Args:
        model: which.
        full: fill every field; otherwise those that need not be there may be left out.
    """
    fields = {name: _values(field.annotation, full=full) for name, field in model.model_fields.items()}
    needed = {name for name, field in model.model_fields.items() if field.is_required()}
    either = _EITHER.get(model, ())
    always = {name: fields[name] for name in fields if name not in either and (full or name in needed)}
    maybe = {name: fields[name] for name in fields if name not in either and name not in always}
    given = st.fixed_dictionaries(always, optional=maybe)
    if either:
        one = st.sampled_from(either).flatmap(lambda name: st.fixed_dictionaries({name: fields[name]}))
        given = st.builds(dict.__or__, given, one)
    return given.map(model.model_validate)


def requests(*, full: bool = False) -> st.SearchStrategy[TrainingJobRequest]:
    """Whole requests."""
    return models(TrainingJobRequest, full=full)


def _values(annotation: Any, *, full: bool) -> st.SearchStrategy[Any]:
    origin, inside = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin in (Union, types.UnionType):
        # A location in OSS or any dict: of two that fit, the one that is ours.
        kinds = [kind for kind in inside if kind is not type(None)]
        return _values(OssLocation if OssLocation in kinds else kinds[0], full=full)
    if origin is Annotated:
        return _values(inside[0], full=full)
    if origin is Literal:
        return st.sampled_from(inside)
    if origin is list and inside[0] in (Role, Mount):
        return _ROLES if inside[0] is Role else _MOUNTS
    if origin is list:
        return st.lists(_values(inside[0], full=full), min_size=1, max_size=2)
    if origin is dict:
        return JSON if inside[1] is Any else st.dictionaries(TEXT, _PLAIN[inside[1]], min_size=1, max_size=3)
    if issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    return models(annotation, full=full)
