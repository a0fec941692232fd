"""Hashes all inputs on which the outputs of a step depend, and explains why an earlier execution is not valid.

A step depends on its code, on its request or its arguments, and on its inputs. An input from another step is
identified by the execution that has made it, so a step that was executed again has its dependents executed again.
Any other input is identified by the ETags, or by sizes and times, of its files.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.code.function_package import FOLDER
from pai_sdk._client.code.job_package import CHANNEL, ships_package
from pai_sdk._client.pipeline.contents import CODE, content_of, sources_of
from pai_sdk._client.pipeline.searches import SearchCall
from pai_sdk._client.submit.estimator import FunctionEstimator
from pai_sdk._client.submit.request_fields import folder_of
from pai_sdk._client.submit.submitter import EstimatorBase
from pai_sdk._data.run.functions.calling import KEY_VARIABLE
from pai_sdk._data.storage.content_hash import hexadecimal
from pai_sdk._data.storage.store import open_store
from pai_sdk._data.storage.tree import with_sha256
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import PaiError

_EXCLUDED_FIELDS = (
    "training_job_name",
    "labels",
    "output_channels",
    "input_channels",
    "hyperparameters",  # each is a part of its own
    "training_job_description",
    "scheduler",  # a time limit ends a job or does not; it is in no output
)


def digest(value: Any) -> str:
    """Returns a hash of a value; of what JSON does not have, such as an array, the content counts."""
    return hashlib.sha256(content_of(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parts_of_call(
    function: Callable[..., Any], arguments: Mapping[str, Any], executions: Mapping[str, str]
) -> dict[str, str]:
    """Returns the hashes of all inputs of a call; `executions` has those that its references stand for."""
    arguments_parts = {name: digest(value) for name, value in arguments.items() if name not in executions}
    return {
        **_function_parts(function),
        **{f"argument {name}": value for name, value in arguments_parts.items()},
        **{f"argument {name}": value for name, value in executions.items()},
        **parts_of_paths(arguments),
    }


def _function_parts(function: Any) -> dict[str, str]:
    return {label: digest(contents) for label, contents in sources_of(function).items()}


def parts_of_paths(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Returns the files of each `Path` argument; read again after the call, which may have written them."""
    paths_by_name = {name: [*_paths_in(value)] for name, value in arguments.items()}
    return {
        f"files of argument {name}": digest([_files_of(path) for path in paths])
        for name, paths in paths_by_name.items()
        if paths
    }


def _paths_in(value: object) -> Iterator[Path]:
    """Yields the paths in an argument, also within lists and dicts."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _paths_in(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _paths_in(item)


def _files_of(path: Path) -> list[list[Any]]:
    """Returns name, size and time of each file of a path, through links; empty for a path without files."""
    folders, files, visited = [path.expanduser()], [], set()
    while folders:
        folder = folders.pop()
        try:
            state = folder.stat()
            if not stat.S_ISDIR(state.st_mode):
                files.append([str(folder), state.st_size, state.st_mtime_ns])
            elif (key := (state.st_dev, state.st_ino)) not in visited:  # links may form a cycle
                visited.add(key)
                folders += folder.iterdir()
        except OSError:  # it does not exist, or may not be read
            files += [] if folder == path else [[str(folder), None, None]]
    return sorted(files, key=str)


def parts_of_plan(
    plan: Plan,
    executions: Mapping[str, str],
    session: Any,
    function: Callable[..., Any] | None = None,
    *,
    job_folder: str = "",
) -> dict[str, str]:
    """Returns the hashes of all inputs of a job.

    `executions` fill its input channels, by channel. `function` is the function that the job calls, if any.
    `job_folder` has the default outputs, and differs in each run; if it is empty, no outputs count.
    """
    request = plan.request
    code = request.effective_code_dir
    # By SHA-256, as in earlier releases, whose executions stay valid.
    uploaded = {upload.uri: with_sha256(upload.tree).digest for upload in plan.uploads}

    def content(uri: str) -> str | None:
        digests = (tree for folder, tree in uploaded.items() if uri.startswith(folder))
        return next(digests, None) or files_identity(uri, session)

    variables: dict[str, str] = {}
    if function is None:
        code_part = content((code and code.oss_uri) or "") or digest(code and code.to_wire())
    else:
        environments = {k: v for k, v in (request.environments or {}).items() if k != KEY_VARIABLE}
        request = request.model_copy(update={"environments": environments})
        packed = with_sha256(plan.uploads[0].tree).entries
        # Without the package of the function, which differs in each plan: it has the number of the call.
        files = [
            [file.path, hexadecimal(file.digest)] for file in packed if not file.path.startswith(f"{FOLDER}/")
        ]
        variables = _function_parts(function)
        code_part = digest([variables.pop(CODE), files])
    parts = {"the request": digest(_terms(request)), "the code": code_part, **variables}
    parts |= {f"hyperparameter {each.name}": digest(each.value) for each in request.hyperparameters}
    has_package = request.algorithm_spec is not None and ships_package(request.algorithm_spec.command or ())
    for channel in request.input_channels:
        # The package for jobs is another one in each release, and only reports.
        if has_package and channel.name == CHANNEL:
            continue
        input_part = executions.get(channel.name) or content(channel.input_uri or "")
        parts[f"input {channel.name}"] = input_part or digest(channel.to_wire())
    return {**parts, **_parts_of_outputs(request, job_folder), **_parts_of_resume(plan)}


def _parts_of_outputs(request: TrainingJobRequest, job_folder: str) -> dict[str, str]:
    """Returns the targets of the outputs without the folder of the job: an explicit target has to be filled."""
    if not job_folder:
        return {}
    folders = (job_folder, folder_of(job_folder))  # the second one in an experiment

    def part(value: Any) -> Any:
        segments = value.split("/") if isinstance(value, str) else []
        return ["*" if segment in folders else segment for segment in segments] or value

    return {
        f"output {channel.name}": digest({name: part(value) for name, value in channel.to_wire().items()})
        for channel in request.output_channels
    }


def _parts_of_resume(plan: Plan) -> dict[str, str]:
    """Returns the checkpoint from which the job resumes, unless it is one of its own."""
    point = plan.resume
    if point is None or point.source == point.target:
        return {}
    return {
        "the checkpoint to resume from": digest(
            [point.source, [[checkpoint.uri, checkpoint.time] for checkpoint in point.checkpoints]]
        )
    }


def parts_of_search(
    search: SearchCall, inputs: Mapping[str, Any], executions: Mapping[str, str]
) -> dict[str, str]:
    """Returns the hashes of all inputs of a search."""
    tuner = search.tuner
    estimator, parts = tuner.estimator, {"the search": digest(tuner.description)}
    if tuner.has_given_study:
        parts["the study"] = digest(tuner.study)
    if earlier := tuner.earlier_trials():
        parts["warm_start"] = digest([[trial.params, [*trial.values]] for trial in earlier])
    plan = search.plan(inputs)
    if plan is None or not isinstance(estimator, EstimatorBase):
        return {**parts, **_function_parts(estimator)}
    return {**parts, **parts_of_plan(plan, executions, estimator.resolved_session(), function_of(estimator))}


def function_of(submitter: object) -> Callable[..., Any] | None:
    """Returns the function that the jobs of an estimator call; None for other jobs."""
    return submitter.function if isinstance(submitter, FunctionEstimator) else None


def changes(previous: Mapping[str, str] | None, current: Mapping[str, str]) -> str:
    """Returns the reason for which a step has to be executed again."""
    if previous is None:
        return "it was not executed before"
    changed = [name for name, value in current.items() if previous.get(name) not in (None, value)]
    new = [name for name in current if name not in previous]
    gone = [name for name in previous if name not in current]
    reasons = [*(f"{name} has changed" for name in changed), *(f"{name} is new" for name in new)]
    return ", ".join([*reasons, *(f"{name} is gone" for name in gone)]) or "the earlier execution is gone"


def _terms(request: TrainingJobRequest) -> dict[str, Any]:
    """Returns the fields of a request that have no part of their own and are equal in each run."""
    exclude: dict[str, Any] = {**dict.fromkeys(_EXCLUDED_FIELDS, True), "code_dir": True}
    exclude["algorithm_spec"] = {"code_dir": True} if request.algorithm_spec else True
    terms = request.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=exclude)
    # Executions that earlier releases have recorded count only if a registered algorithm has an empty spec.
    return terms if request.algorithm_spec else {**terms, **wire_names(algorithm_spec={})}


def files_identity(uri: str, session: Any) -> str | None:
    """Returns a hash of the listing of a folder or a file; None if it does not exist."""
    if not uri:
        return None
    folder, _, name = uri.rpartition("/") if not uri.endswith("/") else (uri, "", "")
    try:
        store = open_store(folder, session)
        files = [store.head(name)] if name else sorted(store.list(), key=lambda file: file.path)
        if name and not files:
            return None
    except PaiError:
        return files_identity(f"{uri}/", session) if name else None
    return (
        digest([[file.path, file.size_bytes, file.etag or file.modified_ns] for file in files]) if files else None
    )
