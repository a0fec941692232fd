"""What the outputs of a step depend on, as hashes, and why an earlier execution does or does not count.

A step depends on its code, on its request or its arguments, and on its inputs. An input from another step is named
by the execution that has made it, so a step that was executed again has its dependents executed again. An input
from elsewhere is named by the ETags, or by sizes and times, of its files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

from pai_sdk.backend.base import Plan
from pai_sdk.code.function_package import FOLDER, KEY_VARIABLE
from pai_sdk.errors import PaiError
from pai_sdk.pipeline.contents import CODE, content_of, sources_of
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
    """A hash of a value; of what JSON does not have, such as an array, the content counts."""
    try:
        text = json.dumps(value, sort_keys=True, default=_as_text)
    except (TypeError, ValueError):  # a dict with other keys than texts
        text = content_of(value)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_text(value: Any) -> str:
    return str(value) if isinstance(value, PurePath) else content_of(value)


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
        **_parts_of_function(function),
        **{f"argument {name}": value for name, value in own.items()},
        **{f"argument {name}": value for name, value in made.items()},
        **parts_of_paths(arguments),
    }


def _parts_of_function(function: Any) -> dict[str, str]:
    return {called: digest(texts) for called, texts in sources_of(function).items()}


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
    variables: dict[str, str] = {}
    if function is None:
        code_part = content(in_oss) or digest(code)
    else:
        rest["Environments"] = {k: v for k, v in rest.get("Environments", {}).items() if k != KEY_VARIABLE}
        packed = plan.uploads[0].tree.entries
        files = [[file.path, file.sha256] for file in packed if not file.path.startswith(f"{FOLDER}/")]
        variables = _parts_of_function(function)
        code_part = digest([variables.pop(CODE), files])
    parts = {"the request": digest(_without_outputs(rest)), "the code": code_part, **variables}
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
        return {**parts, **_parts_of_function(estimator)}
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
