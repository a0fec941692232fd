"""`dlc job submit`, as the vendor's command `pai` has it: flags, or a body of CreateJob in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from pai_sdk._client.submit.yaml_file import read_scalar, read_yaml
from pai_sdk._wire.body import received, unknown_problems
from pai_sdk._wire.dlc.checks import caution_problems, job_problems
from pai_sdk._wire.dlc.job_specs import JobSpec, ResourceConfig
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk.cli.dlc.connection import DlcConnection, default_workspace
from pai_sdk.cli.dlc.flags import Arguments, Flag
from pai_sdk.cli.dlc.output import print_body, print_box
from pai_sdk.cli.dlc.submitting import create_job
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import InvalidInputError, Problem

FORMATS = ("table", "json", "quiet")

_POD = ("image", "spec", "cpu", "memory", "gpu", "gpu-type", "shared-memory")
JOB_FLAGS = (
    Flag("name", "name of the job"),
    Flag("image", "the image of the workers"),
    Flag("command", "what runs in each pod"),
    Flag("job-type", "PyTorchJob otherwise"),
    Flag("workspace-id", "workspace; that of the settings otherwise"),
    Flag("resource-id", "quota; public resources without it"),
    Flag("worker-spec", "the instance type of the workers, on public resources"),
    Flag("worker-count", "number of workers; 1 otherwise", "number"),
    *(Flag(name, f"{name} of a worker, in a quota") for name in _POD[2:]),
    Flag("role", "NAME:count=2,gpu=8,image=…; may be repeated"),
    Flag("body-json", "@FILE with the body of CreateJob, in JSON or YAML, or the body itself"),
    Flag("override", "PATH=VALUE: a field of the body; may be repeated"),
    Flag("override-string", "PATH=TEXT"),
    Flag("override-unset", "PATH"),
    Flag("dry-run", "print the request, and send nothing", "boolean"),
)

_STEP = re.compile(r"[^.\[\]]+")
# A comma separates the settings of a role only before the next NAME=.
_NEXT_SETTING = re.compile(r",(?=[a-z_-]+=)")


def job(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Submits a job; returns the exit code."""
    verb, *more = arguments.positionals or [""]
    if verb != "submit":
        spelling = "job submit; for other commands `get job`, `logs`, `stop job`, `delete job`"
        arguments.problems.append(Problem("job", f"{verb!r} is not supported", f"there is: {spelling}"))
    arguments.problems += (Problem(word, "is no flag", "quote values that have spaces") for word in more)
    is_dry = arguments.boolean("dry-run")
    body = _body(arguments)
    arguments.check()
    connection = None if is_dry else connect()
    if not body.get("WorkspaceId"):
        workspace_id = default_workspace() if connection is None else connection.workspace_id
        body |= NewJob(workspace_id=workspace_id).to_wire()
    if problems := job_problems(body):
        raise InvalidInputError(problems)
    for warning in [*unknown_problems(received(NewJob, body)), *caution_problems(body)]:
        print_error(f"warning: {warning}")
    if connection is None:
        print_body(body)
        return 0
    created = create_job(connection.jobs, body)
    ids = {"JobId": created.job_id or "", "RequestId": created.request_id or ""}
    output = arguments.text("output")
    if output == "quiet":
        typer.echo(created.job_id)
    elif output == "json":
        print_body(ids)
    else:
        print_box(ids)
    return 0


def _body(arguments: Arguments) -> dict[str, Any]:
    """Returns the body: that of the file, with the fields of flags, with the overrides."""
    body = _file_body(arguments)
    flags = NewJob(
        display_name=arguments.text("name"),
        job_type=arguments.text("job-type") or (None if body else "PyTorchJob"),
        job_specs=[*_roles(arguments)],
        user_command=arguments.text("command"),
        workspace_id=arguments.text("workspace-id"),
        resource_id=arguments.text("resource-id"),
    )
    body |= flags.to_wire()
    for flag, read in (("override", read_scalar), ("override-string", str)):
        for text in arguments.values.get(flag, ()):
            path, equals, value = text.partition("=")
            if not equals or not _set(body, path, _value(value) if read is read_scalar else value):
                arguments.problems.append(Problem(f"--{flag}", f"{text!r} is no PATH=VALUE of this body"))
    for path in arguments.values.get("override-unset", ()):
        _set(body, path, None)
    return {name: value for name, value in body.items() if value is not None}


def _file_body(arguments: Arguments) -> dict[str, Any]:
    text = arguments.text("body-json")
    if text is None:
        return {}
    try:
        content = read_yaml(Path(text[1:]).expanduser()).value if text.startswith("@") else json.loads(text)
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        arguments.problems.append(Problem("--body-json", "is not JSON", "write @FILE for a file"))
        return {}
    if not isinstance(content, dict):
        arguments.problems.append(Problem("--body-json", "is no object with the fields of CreateJob"))
        return {}
    return dict(content)


def _roles(arguments: Arguments) -> Iterator[JobSpec]:
    """Yields the roles of `--role`, or else the workers."""
    roles = arguments.values.get("role", [])
    worker_flags = [name for name in ("worker-spec", "worker-count", *_POD) if name in arguments]
    if roles:
        arguments.problems += (
            Problem(f"--{name}", "is given beside --role") for name in worker_flags if name != "image"
        )
        for text in roles:
            name, _, settings = text.partition(":")
            pairs = (each.partition("=") for each in _NEXT_SETTING.split(settings) if each)
            yield _role(arguments, name, {key.replace("_", "-"): value for key, _, value in pairs})
    elif worker_flags:
        values = {name: arguments.text(name) or "" for name in _POD if name in arguments}
        values |= {"spec": arguments.text("worker-spec") or "", "count": arguments.text("worker-count") or ""}
        yield _role(arguments, "Worker", values)


def _role(arguments: Arguments, name: str, values: Mapping[str, str]) -> JobSpec:
    for key in values.keys() - {*_POD, "count"}:
        arguments.problems.append(Problem("--role", f"{key!r} of {name} is not supported"))
    count = values.get("count") or "1"
    if not count.isdecimal():
        arguments.problems.append(Problem("--role", f"the count {count!r} of {name} is no number"))
        count = "1"
    resources = ResourceConfig(
        cpu=values.get("cpu"),
        gpu=values.get("gpu"),
        gpu_type=values.get("gpu-type"),
        memory=values.get("memory"),
        shared_memory=values.get("shared-memory"),
    )
    return JobSpec(
        type=name,
        pod_count=int(count),
        image=values.get("image") or arguments.text("image"),
        ecs_spec=values.get("spec"),
        resource_config=resources if resources.to_wire() else None,
    )


def _value(text: str) -> Any:
    """Reads a value: an object or a list in JSON, or a scalar of YAML."""
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return read_scalar(text)


def _set(body: dict[str, Any], path: str, value: Any) -> bool:
    """Sets a field of a body, or removes it for None; returns False where its parent does not exist."""
    *above, last = _STEP.findall(path) or [""]
    parent: Any = body
    for step in above:
        if isinstance(parent, list) and step.isdecimal() and int(step) < len(parent):
            parent = parent[int(step)]
        elif isinstance(parent, dict) and step:
            parent = parent.setdefault(step, {})
        else:
            return False
    if isinstance(parent, list) and last.isdecimal() and int(last) < len(parent):
        parent[int(last)] = value
    elif isinstance(parent, dict) and last:
        parent[last] = value
        if value is None:
            del parent[last]
    else:
        return False
    return True
