"""What the outputs of a step depend on, as hashes, and why an earlier execution does or does not count.

A step depends on its code, on its request or its arguments, and on its inputs. An input from another step is named
by the execution that has made it, so a step that was executed again has its dependents executed again. An input
from elsewhere is named by the ETags, or by sizes and times, of its files.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pai_sdk.backend.base import Plan
from pai_sdk.code.function_package import FOLDER, KEY_VARIABLE
from pai_sdk.errors import PaiError
from pai_sdk.pipeline.searches import SearchCall
from pai_sdk.storage.store import open_store
from pai_sdk.submit.estimator import FunctionEstimator
from pai_sdk.submit.submitter import EstimatorBase

__all__ = [
    "changes",
    "digest",
    "function_of",
    "parts_of_call",
    "parts_of_paths",
    "parts_of_plan",
    "parts_of_search",
]

_OF_ONE_JOB = ("TrainingJobName", "Labels", "OutputChannels", "CodeDir", "InputChannels", "TrainingJobDescription")


def digest(value: Any) -> str:
    """A hash of what JSON can have."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def parts_of_call(
    function: Callable[..., Any], arguments: Mapping[str, Any], made: Mapping[str, str]
) -> dict[str, str]:
    """What the result of a call depends on.

    Args:
        function: the function.
        arguments: with values instead of references.
        made: the executions that its references stand for, by argument.
    """
    own = {name: digest(value) for name, value in arguments.items() if name not in made}
    return {
        "the code of the function": digest([*_sources(function, set())]),
        **{f"argument {name}": value for name, value in own.items()},
        **{f"argument {name}": value for name, value in made.items()},
        **parts_of_paths(arguments),
    }


def parts_of_paths(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The files of each argument that is a `Path`; read again after the call, which may have written them."""
    paths = {name: str(value) for name, value in arguments.items() if isinstance(value, Path)}
    return {f"argument {name}": digest([path, _identity(path, None)]) for name, path in paths.items()}


def parts_of_plan(
    plan: Plan, made: Mapping[str, str], session: Any, function: Callable[..., Any] | None = None
) -> dict[str, str]:
    """What the outputs of a job depend on.

    Args:
        plan: of the job.
        made: the executions that fill its input channels, by channel.
        session: whose keys read inputs in OSS.
        function: the one that the job calls, if it calls one. Its package is another one in each plan: it has the
            number of the call.
    """
    request = plan.request.to_wire()
    hyperparameters = {one["Name"]: one["Value"] for one in request.pop("HyperParameters", [])}
    code = request.get("CodeDir") or (request.get("AlgorithmSpec") or {}).get("CodeDir")
    rest = {name: value for name, value in request.items() if name not in _OF_ONE_JOB}
    uploaded = {upload.uri: upload.tree.digest for upload in plan.uploads}

    def content(uri: str) -> str | None:
        here = (tree for folder, tree in uploaded.items() if uri.startswith(folder))
        return next(here, None) or _identity(uri, session)

    place = (code or {}).get("LocationValue") or {}
    in_oss = f"oss://{place['Bucket']}/{place['Key']}" if "Key" in place else ""
    if function is None:
        code_part = content(in_oss) or digest(code)
    else:
        rest["Environments"] = {k: v for k, v in rest.get("Environments", {}).items() if k != KEY_VARIABLE}
        packed = plan.uploads[0].tree.entries
        files = [[file.path, file.sha256] for file in packed if not file.path.startswith(f"{FOLDER}/")]
        code_part = digest([[*_sources(function, set())], files])
    parts = {"the request": digest(_without_outputs(rest)), "the code": code_part}
    parts |= {f"hyperparameter {name}": digest(value) for name, value in hyperparameters.items()}
    for channel in request.get("InputChannels", []):
        name, uri = channel["Name"], channel.get("InputUri") or ""
        parts[f"input {name}"] = made.get(name) or content(uri) or digest(channel)
    return parts


def parts_of_search(search: SearchCall, inputs: Mapping[str, Any], made: Mapping[str, str]) -> dict[str, str]:
    """What the best trial of a search depends on.

    Args:
        search: the function of the step.
        inputs: of all trials, by channel.
        made: the executions that fill them, by channel.
    """
    estimator, parts = search.tuner.estimator, {"the search": digest(search.tuner.description)}
    plan = search.plan(inputs)
    if plan is None or not isinstance(estimator, EstimatorBase):
        return {**parts, "the code of the function": digest([*_sources(estimator, set())])}
    return {**parts, **parts_of_plan(plan, made, estimator._session(), function_of(estimator))}


def function_of(submitter: object) -> Callable[..., Any] | None:
    """The function that the jobs of an estimator call, if they call one."""
    return submitter.function if isinstance(submitter, FunctionEstimator) else None


def changes(before: Mapping[str, str] | None, now: Mapping[str, str]) -> str:
    """Why a step has to be executed: what is not as it was.

    Example:
        >>> changes({"the code": "a", "input data": "b"}, {"the code": "a", "input data": "c"})
        'input data has changed'
        >>> changes(None, {})
        'it was not executed before'
    """
    if before is None:
        return "it was not executed before"
    found = [name for name, value in now.items() if before.get(name) not in (None, value)]
    new = [name for name in now if name not in before]
    gone = [name for name in before if name not in now]
    texts = [*(f"{name} has changed" for name in found), *(f"{name} is new" for name in new)]
    return ", ".join([*texts, *(f"{name} is gone" for name in gone)]) or "the earlier execution is gone"


def _without_outputs(request: dict[str, Any]) -> dict[str, Any]:
    """The request without the places of its outputs, which differ from run to run."""
    spec = dict(request.get("AlgorithmSpec") or {})
    spec.pop("CodeDir", None)
    return {**request, "AlgorithmSpec": spec}


def _identity(uri: str, session: Any) -> str | None:
    """The content of a folder or a file, by what a list says of it; None where nothing is known."""
    if not uri:
        return None
    folder, _, name = uri.rpartition("/") if not uri.endswith("/") else (uri, "", "")
    try:
        store = open_store(folder, session)
        files = [store.head(name)] if name else [*store.list()]
        if name and not files:
            return None
    except PaiError:
        return _identity(f"{uri}/", session) if name else None
    return digest([[one.path, one.size_bytes, one.etag or one.modified_ns] for one in files]) if files else None


def _sources(function: Any, seen: set[int]) -> Iterator[str]:
    """The source of a function, and of the functions and constants of its module that it names."""
    if isinstance(function, functools.partial):
        yield _state([function.args, function.keywords])
        yield from _sources(function.func, seen)
        return
    function = inspect.unwrap(function)
    if isinstance(function, types.MethodType):
        yield from _state_of_owner(function.__self__)
        function = function.__func__
    if id(function) in seen:
        return
    seen.add(id(function))
    if not isinstance(function, types.FunctionType):
        yield f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(type(function)))}"
        if isinstance(call := inspect.getattr_static(type(function), "__call__", None), types.FunctionType):
            yield from _state_of_owner(function)
            yield from _sources(call, seen)
        return
    try:
        yield inspect.getsource(function)
        is_whole = function.__name__ != "<lambda>"  # the source of a lambda is its line, which may have several
    except (OSError, TypeError):  # it was typed in, or made by exec
        is_whole = False
    if not is_whole:
        yield from _code(function.__code__)
    yield repr((function.__defaults__, function.__kwdefaults__))
    for name in _names_in(function.__code__):
        value = function.__globals__.get(name, function)
        if isinstance(value, types.FunctionType) and value.__module__ == function.__module__:
            yield from _sources(value, seen)
        elif isinstance(value, str | int | float | bool | tuple | None):
            yield f"{name} = {value!r}"
        elif isinstance(value, list | dict | set) and (text := _plain(value)) is not None:
            yield f"{name} = {text}"
    for cell in function.__closure__ or ():
        value = cell.cell_contents
        if isinstance(value, types.FunctionType):
            yield from _sources(value, seen)
        else:
            yield repr(value)


def _state_of_owner(owner: Any) -> Iterator[str]:
    """The attributes of an object whose method is called."""
    if not isinstance(owner, type | types.ModuleType):
        yield _state(getattr(owner, "__dict__", {}))


def _state(value: Any) -> str:
    return _plain(value) or repr(value)


def _plain(value: Any) -> str | None:
    """The value as JSON, with sets; None if it has something else."""

    def in_order(one: Any) -> Any:
        if isinstance(one, set | frozenset):
            return sorted(map(repr, one))
        raise TypeError

    try:
        return json.dumps(value, sort_keys=True, default=in_order)
    except (TypeError, ValueError, RecursionError):
        return None


def _code(code: types.CodeType) -> Iterator[str]:
    constants = [one for one in code.co_consts if not isinstance(one, types.CodeType)]
    yield repr((code.co_code, code.co_names, constants))
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _code(one)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
