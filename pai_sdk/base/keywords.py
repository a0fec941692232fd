"""Checks keyword arguments: an error lists all unknown and missing ones, with the nearest names.

Standard library only: this is loaded with `Estimator` and `Processor`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import ParamSpec, TypeVar, cast

from pai_sdk.base.hints import did_you_mean, nearest
from pai_sdk.errors import Problem, WrongCallError

__all__ = ["checks_keywords", "init_checks_keywords", "shows_parameters_of"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)

# What SageMaker calls by a name that is not near to ours: our parameter, and what to do.
_ELSEWHERE = {
    "entry_point": ("command", "the command names it: command='python train.py'"),
    "role": ("role_arn", "the access key decides what you may do; the role that the job assumes is role_arn"),
    "framework_version": ("image_uri", "the image decides: image_uri"),
    "dependencies": ("requirements", "folders go into source_dir, packages into requirements=[…]"),
    "use_spot_instances": ("spot_spec", "spot_spec=SpotSpec(…)"),
    "checkpoint_s3_uri": ("checkpoints_path", "did you mean 'checkpoints_path'?"),
    "resume_from": ("resume", "resume=True, resume='<job id>' or resume='<uri>'"),
    "resume_from_checkpoint": ("resume", "resume=True, resume='<job id>' or resume='<uri>'"),
    "sagemaker_session": ("session", "did you mean 'session'?"),
    "tags": ("labels", "did you mean 'labels'?"),
}


def checks_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function; with unknown keyword arguments it raises a `WrongCallError` that lists all of them.

    Its signature stays what it is, for editors and for `inspect`.

    Args:
        function: takes no `**keywords`.
    """
    plain = cast("FunctionType", function)
    code = plain.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    needed = names[: code.co_argcount - len(plain.__defaults__ or ())]

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        unknown = [name for name in kwargs if name not in names]
        missing = [name for name in needed[len(args) :] if name not in kwargs]
        if unknown or missing:
            raise WrongCallError(_problems(unknown, missing, [name for name in names[1:] if name not in kwargs]))
        return function(*args, **kwargs)

    return checked


def init_checks_keywords(cls: _C) -> _C:
    """The same class; `checks_keywords` is applied to its `__init__`. For above `@dataclass`, which writes it."""
    cls.__init__ = checks_keywords(cls.__init__)  # type: ignore[misc]
    return cls


def shows_parameters_of(other: Callable[_P, object]) -> Callable[[Callable[..., _R]], Callable[_P, _R]]:
    """Have editors, type checkers and `help()` show the parameters that a function only hands on.

    Args:
        other: the function that gets them.
    """

    def shown(function: Callable[..., _R]) -> Callable[_P, _R]:
        returned = signature(function).return_annotation
        function.__signature__ = signature(other).replace(  # type: ignore[attr-defined]
            return_annotation=returned
        )
        return function

    return shown


def _problems(unknown: list[str], missing: list[str], free: list[str]) -> list[Problem]:
    """The problems to report; an argument that is missing because it was misspelt is reported once."""
    problems = []
    for name in unknown:
        near = nearest(name, free)
        ours, hint = _ELSEWHERE.get(name, ("", ""))
        if ours not in free:
            hint = did_you_mean(near)
        problems.append(Problem(name, "is an unknown keyword argument", hint))
        missing = [other for other in missing if other not in near]
    return problems + [Problem(name, "is missing") for name in missing]
