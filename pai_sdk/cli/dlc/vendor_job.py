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
from pai_sdk._wire.dlc.flags import POD_FIELDS, VENDOR_FLAGS, put_field
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk.cli.dlc.connection import DlcConnection, default_workspace
from pai_sdk.cli.dlc.creation import create_job
from pai_sdk.cli.dlc.flags import Arguments
from pai_sdk.cli.dlc.output import print_body, print_box
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import InvalidInputError, Problem

_STEP = re.compile(r"[^.\[\]]+")
# A comma separates the settings of a role only before the next NAME=.
_NEXT_SETTING = re.compile(r",(?=[a-z_-]+=)")


def job(arguments: Arguments, connect: Callable[[], DlcConnection]) -> int:
    """Submits a job; returns the exit code."""
    verb, *more = arguments.positionals or [""]
    if verb != "submit":
        spelling = "job submit; for other commands `get job`, `logs`, `stop job`, `delete job`"
        arguments.problems.append(Problem("job", f"{verb!r} is not supported", f"available: {spelling}"))
    arguments.problems += (Problem(word, "is not a flag", "quote values that have spaces") for word in more)
    is_dry = arguments.boolean("dry-run")
    body = _body(arguments)
    arguments.check()
    connection = None if is_dry else connect()
    if received(NewJob, body).workspace_id is None:
        workspace_id = default_workspace() if connection is None else connection.workspace_id
        body |= NewJob(workspace_id=workspace_id).to_wire()
    if problems := job_problems(body):
        raise InvalidInputError(problems)
    for warning in [*unknown_problems(received(NewJob, body)), *caution_problems(body)]:
        print_error(f"warning: {warning}")
    if connection is None:
        print_body(body)
        return 0
    created = create_job(connection, body)
    output = arguments.text("output")
    if output == "quiet":
        typer.echo(created.job_id)
    elif output == "json":
        print_body(created.to_wire())
    else:
        print_box(created.to_wire())
    return 0


def _body(arguments: Arguments) -> dict[str, Any]:
    """Returns the body: that of the file, with the fields of flags, with the overrides."""
    body = _file_body(arguments)
    job_flags = [flag for flag in VENDOR_FLAGS if flag.field and not flag.role]
    fields = {"job_type": None if body else "PyTorchJob", "job_specs": [*_roles(arguments)]}
    fields |= {flag.field: text for flag in job_flags if (text := arguments.text(flag.name))}
    body |= NewJob.model_validate(fields).to_wire()
    for flag, read in (("override", read_scalar), ("override-string", str)):
        for text in arguments.values.get(flag, ()):
            path, equals, value = text.partition("=")
            if not equals or not _set(body, path, _value(value) if read is read_scalar else value):
                arguments.problems.append(Problem(f"--{flag}", f"{text!r} is not a PATH=VALUE of this body"))
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
        arguments.problems.append(Problem("--body-json", "is not an object with the fields of CreateJob"))
        return {}
    return dict(content)


def _roles(arguments: Arguments) -> Iterator[dict[str, Any]]:
    """Yields the roles of `--role`, or else the workers."""
    roles = arguments.values.get("role", [])
    worker_flags = [flag for flag in VENDOR_FLAGS if flag.role and flag.name in arguments]
    if roles:
        arguments.problems += (
            Problem(f"--{flag.name}", "is not allowed with --role")
            for flag in worker_flags
            if flag.name != "image"
        )
        for text in roles:
            name, _, settings = text.partition(":")
            pairs = (each.partition("=") for each in _NEXT_SETTING.split(settings) if each)
            values = {key.replace("-", "_"): value for key, _, value in pairs}
            for key in values.keys() - POD_FIELDS.keys():
                arguments.problems.append(Problem("--role", f"{key!r} of {name} is not supported"))
            fields = {POD_FIELDS[key]: value for key, value in values.items() if key in POD_FIELDS}
            yield _role(arguments, name, {"image": arguments.text("image") or "", **fields})
    elif worker_flags:
        yield _role(arguments, "Worker", {flag.field: arguments.text(flag.name) or "" for flag in worker_flags})


def _role(arguments: Arguments, name: str, fields: Mapping[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"type": name, "pod_count": "1"}
    for path, text in fields.items():
        if text:
            put_field(spec, path, text)
    if not spec["pod_count"].isdecimal():
        arguments.problems.append(Problem("--role", f"the count {spec['pod_count']!r} of {name} is not a number"))
        spec["pod_count"] = 1
    return spec


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
