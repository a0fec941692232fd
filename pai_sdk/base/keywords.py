"""Checks keyword arguments: an error lists all unknown and missing ones, with the nearest names.

Keywords of SageMaker that mean the same as one of ours are accepted.

Standard library only: this is loaded with `Estimator` and `Processor`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from pai_sdk.base.hints import did_you_mean, nearest
from pai_sdk.errors import Problem, WrongCallError

__all__ = ["checks_keywords", "init_checks_keywords", "shows_parameters_of"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)

_VPC = "user_vpc_config=UserVpcConfig(vpc_id=…, switch_id=…, security_group_id=…)"
_IMAGE = "the image decides: image_uri=retrieve('PyTorch', '1.12').image_uri"
_RESUME = "resume=True, resume='<job id>' or resume='<uri>'"

# What SageMaker and Vertex call by a name that is not near to ours: our parameter, and what to do.
_ELSEWHERE = {
    "entry_point": ("command", "the command names it: command='python train.py'"),
    "role": ("role_arn", "the access key decides what you may do; the role that the job assumes is role_arn"),
    "framework_version": ("image_uri", _IMAGE),
    "py_version": ("image_uri", _IMAGE),
    "dependencies": ("requirements", "folders go into source_dir, packages into requirements=[…]"),
    "use_spot_instances": ("spot_spec", "spot_spec=SpotSpec(…)"),
    "max_wait": ("max_run_time", "the queue has no limit; job.wait(timeout=…) limits the waiting"),
    "volume_size": ("instance_type", "the disk comes with the instance_type; large data goes to channels"),
    "subnets": ("user_vpc_config", _VPC),
    "security_group_ids": ("user_vpc_config", _VPC),
    "distribution": ("job_type", "job_type='PyTorchJob' and instance_count=…, with torchrun in the command"),
    "tags": ("labels", "labels={'key': 'value'}"),
    "resume_from": ("resume", _RESUME),
    "resume_from_checkpoint": ("resume", _RESUME),
    "display_name": ("base_job_name", "did you mean 'base_job_name'?"),
    "container_uri": ("image_uri", "did you mean 'image_uri'?"),
    "script_path": ("command", "source_dir='src', command='python train.py'"),
    "machine_type": ("instance_type", "did you mean 'instance_type'?"),
    "replica_count": ("instance_count", "did you mean 'instance_count'?"),
    "base_output_dir": ("output_path", "did you mean 'output_path'?"),
    "service_account": ("role_arn", "the role that the job assumes is role_arn"),
}


def _same(value: Any) -> Any:
    return value


def _command_of(entry_point: Any) -> Any:
    """The command that runs a script with the hyperparameters as arguments, as SageMaker does."""
    text = os.fspath(entry_point) if isinstance(entry_point, str | os.PathLike) else ""
    program = {".py": "python", ".sh": "bash"}.get(os.path.splitext(text)[1])  # noqa: PTH122 - a name, no path
    return _DIFFERS if program is None else f"{program} {shlex.quote(text)} $PAI_USER_ARGS"


def _labels_of(tags: Any) -> Any:
    if isinstance(tags, Mapping):
        return tags
    try:
        return {tag["Key"]: tag["Value"] for tag in tags}
    except (TypeError, KeyError):
        return _DIFFERS


def _role_arn_of(role: Any) -> Any:
    return role if isinstance(role, str) and role.startswith("acs:ram::") else _DIFFERS


def _spot_spec_of(use: Any) -> Any:
    """SageMaker's spot instances have no limit but the normal price."""
    if use is False:
        return None
    return {"spot_strategy": "SpotAsPriceGo"} if use is True else _DIFFERS


_DIFFERS = object()
"""The result of a conversion whose value means something that ours does not."""

# Other names of our parameters that are accepted: ours, and the conversion of the value.
_ALSO_CALLED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "entry_point": ("command", _command_of),
    "environment": ("environments", _same),
    "max_run": ("max_run_time", _same),
    "checkpoint_s3_uri": ("checkpoints_path", _same),
    "sagemaker_session": ("session", _same),
    "tags": ("labels", _labels_of),
    "role": ("role_arn", _role_arn_of),
    "use_spot_instances": ("spot_spec", _spot_spec_of),
    "logs": ("show_logs", bool),
    "credential_config": ("credentials", _same),  # alipai's
    "local_path": ("source_path", _same),  # of alipai's documentation, where it raises
}


def checks_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function; with unknown keyword arguments it raises a `WrongCallError` that lists all of them.

    Keywords that are another name of a parameter are accepted (`_ALSO_CALLED`).

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
        _accept_other_names(kwargs, names, names[: len(args)])
        unknown = [name for name in kwargs if name not in names]
        missing = [name for name in needed[len(args) :] if name not in kwargs]
        if unknown or missing:
            given = {*names[: len(args)], *kwargs}
            twice = [name for name in unknown if _ALSO_CALLED.get(name, ("",))[0] in given]
            others = [name for name in unknown if name not in twice]
            problems = _problems(others, missing, [name for name in names[1:] if name not in kwargs])
            raise WrongCallError([*map(_given_twice, twice), *problems])
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


def _accept_other_names(kwargs: dict[str, Any], names: Sequence[str], given: Sequence[str]) -> None:
    """Replace keywords that are another name of a parameter, where their value means the same.

    Args:
        kwargs: of the call; changed in place.
        names: the parameters there are.
        given: those that were given by position.
    """
    for name in [name for name in kwargs if name in _ALSO_CALLED and name not in names]:
        ours, convert = _ALSO_CALLED[name]
        if ours not in names or ours in kwargs or ours in given:
            continue
        value = None if kwargs[name] is None else convert(kwargs[name])
        if value is not _DIFFERS:
            del kwargs[name]
            if value is not None:
                kwargs[ours] = value


def _given_twice(name: str) -> Problem:
    ours = _ALSO_CALLED[name][0]
    return Problem(name, f"is another name of {ours!r}, which is given too", "leave one of them out")


def _problems(unknown: list[str], missing: list[str], free: list[str]) -> list[Problem]:
    """The problems to report; an argument that is missing because it was misspelt is reported once."""
    problems = []
    for name in unknown:
        near = nearest(name, free)
        ours, hint = _ELSEWHERE.get(name, ("", ""))
        if ours not in free:
            hint = did_you_mean(near)
        missing = [other for other in missing if other != ours]
        problems.append(Problem(name, "is an unknown keyword argument", hint))
        missing = [other for other in missing if other not in near]
    return problems + [Problem(name, "is missing") for name in missing]
