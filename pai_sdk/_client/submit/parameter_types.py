"""Checks the types of parameters, before all other checks, which rely on them."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submit.parameters import JobParameters
from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.hints import type_problem
from pai_sdk.errors import InvalidInputError, Problem


@dataclass(frozen=True)
class _ParameterType:
    """The check of a parameter's type, and its name in messages."""

    fits: Callable[[Any], bool]
    hint: str


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


_NAME = _ParameterType(lambda value: isinstance(value, str) and bool(value.strip()), "a string that is not empty")
_TEXT = _ParameterType(lambda value: isinstance(value, str), "a string")
_MAPPING = _ParameterType(lambda value: isinstance(value, Mapping), "a mapping")
_LIST = _ParameterType(_is_list, "a list")
_BOOL = _ParameterType(lambda value: isinstance(value, bool), "True or False")
_TYPES: dict[str, _ParameterType] = {
    **dict.fromkeys(
        (
            "image_uri",
            "job_type",
            "base_job_name",
            "output_path",
            "checkpoints_path",
            "instance_type",
            "resource_id",
            "resource_type",
            "role_arn",
        ),
        _NAME,
    ),
    "description": _TEXT,
    **dict.fromkeys(
        ("roles", "environments", "labels", "prices", "hyperparameters", "parameters", "git_config"), _MAPPING
    ),
    "requirements": _ParameterType(_is_list, "a list: such as ['numpy==2.1', 'tqdm']"),
    **dict.fromkeys(("metric_definitions", "fallback", "retry_on"), _LIST),
    "watch": _ParameterType(
        lambda value: isinstance(value, bool) or _is_list(value),
        "a list of rules, or False: such as [NoProgress(min_s=600)]",
    ),
    "notify": _ParameterType(
        _is_list,  # `guards.targets` checks the entries
        "a list of URLs and targets: such as ['mailtos://…', Webhook(url), DingTalk(url, secret)]",
    ),
    "source_dir": _ParameterType(
        # An empty text would be the current folder, with all that lies in it.
        lambda value: isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str) and value != "",
        "a folder as a string or Path",
    ),
    "priority": _ParameterType(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31,
        "an integer",
    ),
    "resume": _ParameterType(
        lambda value: (
            isinstance(value, bool | os.PathLike | TrainingJob) or (isinstance(value, str) and bool(value.strip()))
        ),
        "True, a job or its id, or the URI or path of checkpoints",
    ),
    **dict.fromkeys(("allow_secrets", "git_labels"), _BOOL),
    "debugger": _ParameterType(lambda value: value in ("terminal", "debugpy"), "'terminal' or 'debugpy'"),
}
# Whole numbers of numpy and similar libraries are converted.
_INTEGERS = ("instance_count", "max_run_time", "max_retries", "priority")
# Replaces a refused value where a missing one would be reported as a second problem.
_STAND_IN = "-"

_Parameters = TypeVar("_Parameters", bound=JobParameters)


def with_checked_types(parameters: _Parameters, problems: Problems) -> _Parameters:
    """Returns a copy of the parameters; those of a wrong type become problems, and get a harmless value."""
    checked = copy(parameters)
    for parameter in fields(parameters):
        expected, value = _TYPES.get(parameter.name), getattr(parameters, parameter.name)
        if parameter.name in _INTEGERS:
            value = _as_int(value)
            setattr(checked, parameter.name, value)
        if value is None and parameter.default is not MISSING:
            setattr(checked, parameter.name, parameter.default)
            continue
        if expected is None or expected.fits(value):
            continue
        kind, _, example = expected.hint.partition(": ")
        problems.add(parameter.name, type_problem(kind, value), example)
        needed = parameter.default is MISSING or parameter.name == "instance_type"
        setattr(checked, parameter.name, _STAND_IN if needed else parameter.default)
    return checked


def check_strings(value: object, where: str) -> None:
    """Raises InvalidInputError for a string with a zero byte or a lone surrogate, without its value."""
    if problems := [*_text_problems(value, where)]:
        raise InvalidInputError(problems)


def _text_problems(value: object, where: str) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _text_problems(name, f"{where} {name!r}")
            yield from _text_problems(inner, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _text_problems(inner, f"{where}[{number}]")
    elif isinstance(value, str):
        if "\0" in value:
            yield Problem(where, "contains a zero byte", "remove it")
        if any("\ud800" <= character <= "\udfff" for character in value):
            yield Problem(where, "contains invalid Unicode (a lone surrogate)", "decode it as UTF-8 first")


def _as_int(value: object) -> object:
    try:
        return value if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return value
