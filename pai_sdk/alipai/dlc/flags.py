"""The `dlc` command's flags as the body of CreateJob, with values that only the script knows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pai_sdk._wire.dlc.flags import (
    EVERY_ROLE,
    FORMER_KINDS,
    FORMER_NAMES,
    GLOBAL_FLAGS,
    ROLES,
    SUBMIT_FLAGS,
    Flag,
    put_field,
)
from pai_sdk._wire.dlc.names import job_type_for
from pai_sdk.alipai.dlc.submissions import Submission, read_vendor_submission
from pai_sdk.alipai.dlc.values import Computed, Value, as_number, joined, source_of, split_at

__all__ = ["read_submission"]

_FLAGS = {flag.name: flag for flag in SUBMIT_FLAGS}
_BOOLEANS = {flag.name for flag in SUBMIT_FLAGS if flag.kind == "boolean"} | {"quiet", "force"}
_REPEATABLE = {flag.name for flag in SUBMIT_FLAGS if flag.is_repeatable} | {"role"}
_SHORT = {flag.short: flag.name for flag in (*GLOBAL_FLAGS, *SUBMIT_FLAGS) if flag.short}
_SHORT["e"] = "endpoint"  # that of `submit` stands for the one of two meanings that is not supported
_READ_ELSEWHERE = {flag.name for flag in GLOBAL_FLAGS} | {*FORMER_NAMES, "job_file", "exit_code_on_stopped"}
_ENDPOINT = re.compile(r"pai-dlc(?:-vpc)?\.([a-z]+-[a-z0-9-]+)\.aliyuncs")


def read_submission(tokens: Sequence[Value], files: Mapping[Value, Value]) -> Submission | None:
    """Reads the tokens behind `dlc`; None if they submit no job. `files` are job files that the script writes."""
    flags, names = _split(tokens)
    if names[:2] == ["job", "submit"]:
        return read_vendor_submission(flags, files)
    if names[:1] == ["submit"] and len(names) > 1:
        kind: Value = names[1]
    elif names[:2] == ["create", "job"]:
        kind = flags.get("kind") or "PyTorchJob"
    else:
        return None
    submission = Submission()
    if names[0] == "create":
        submission.notes.append("`dlc create job` is the older form of `dlc submit`: compare the values")
    job_type = job_type_for(kind) if isinstance(kind, str) else None
    former = FORMER_KINDS.get(kind.lower()) if isinstance(kind, str) else None
    submission.body["job_type"] = job_type or former or kind
    for name in names[2:]:
        submission.notes.append(f"{_printable(name)} is no flag, and was left out")
    flags |= _of_job_file(flags, files, submission)
    _fill(submission, flags)
    return submission


def _split(tokens: Sequence[Value]) -> tuple[dict[str, Value], list[Value]]:
    """Returns the flags with their values, and the other tokens."""
    flags: dict[str, Value] = {}
    names: list[Value] = []
    waiting = list(tokens)
    while waiting:
        word = waiting.pop(0)
        start = word if isinstance(word, str) else word.parts[0]
        if not isinstance(start, str) or not start.startswith("-"):
            names.append(word)
            continue
        name, *value = split_at(word, "=", 1)
        flag = str(name).lstrip("-").replace("-", "_")
        flag = _SHORT.get(flag, flag) if not start.startswith("--") else flag
        before = flags.get(flag)
        if value:
            flags[flag] = value[0]
        elif flag in _BOOLEANS or not waiting or (isinstance(waiting[0], str) and waiting[0].startswith("--")):
            flags[flag] = "true"
        else:
            flags[flag] = waiting.pop(0)
        if before is not None and flag in _REPEATABLE:
            flags[flag] = joined(before, "\n" if flag == "role" else ",", flags[flag])
    return flags, names


def _of_job_file(
    flags: Mapping[str, Value], files: Mapping[Value, Value], submission: Submission
) -> dict[str, Value]:
    """Returns the flags in a job file, which win over those of the command line."""
    path = flags.get("job_file") or flags.get("params_file")
    if path is None:
        return {}
    content = files.get(path)
    if content is None:
        submission.notes.append(f"the job file {_printable(path)} is not there: what it sets is missing")
        return {}
    read: dict[str, Value] = {}
    for line in split_at(content, "\n"):
        key, *value = split_at(line, "=", 1)
        if value and isinstance(key, str):
            read[key.strip()] = value[0]
    return read


def _fill(submission: Submission, flags: Mapping[str, Value]) -> None:
    body, specs = submission.body, dict[str, dict[str, Any]]()
    values = {FORMER_NAMES.get(name) or name: value for name, value in flags.items()}
    for flag in SUBMIT_FLAGS:
        if flag.field and flag.name in values:
            target = specs.setdefault(flag.role, {}) if flag.role else body
            put_field(target, flag.field, _converted(flag, values.pop(flag.name)))
    if any(
        isinstance(each.get("data_source_id"), Computed) and each["data_source_id"].only
        for each in body.get("data_sources", ())
    ):
        submission.notes.append("a variable may name several data sets: each is a mount of its own")
    if (seconds := values.pop("running_timeout", None)) is not None:
        body.setdefault("job_max_running_time_minutes", _minutes(as_number(seconds)))
    if body.get("job_max_running_time_minutes") == 0:  # no limit
        del body["job_max_running_time_minutes"]
    for name, value in values.items():
        _other(submission, name, value)
    body["job_specs"] = list(_specs(specs))


def _other(submission: Submission, flag: str, value: Value) -> None:
    if flag == "region":
        submission.region = value
    elif flag == "endpoint":
        match = _ENDPOINT.search(value) if isinstance(value, str) else None
        submission.region = submission.region or (match[1] if match else None)
    elif flag in ("access_id", "access_key"):
        note = "the key of the command line is left out: see the page 'Credentials'"
        submission.notes += [] if note in submission.notes else [note]
    elif flag == "interactive":
        submission.waits = value != "false"
    elif flag in _FLAGS and _FLAGS[flag].refusal and value == "false":
        return
    elif flag not in _READ_ELSEWHERE:
        near = difflib.get_close_matches(flag, _FLAGS, 1, 0.75)
        hint = f"; did you mean --{near[0]}?" if near else ""
        submission.notes.append(f"--{flag} {_printable(value)} is not translated{hint}")


def _converted(flag: Flag, value: Value) -> Any:
    match flag.kind:
        case "number":
            return as_number(value)
        case "boolean" if isinstance(value, str):
            return int(value != "false") if flag.role else value == "true"  # the number of chiefs
        case "size":
            return _with_unit(value)
        case "pairs":
            return _map(value)
        case "list":
            return _items(value)
        case "packages":
            return _packages(value)
        case "data_sets":
            return [_data_set(each) for each in _items(value)]
        case "mounts":
            return [_mount(each) for each in _uris(value)]
    return value


def _specs(specs: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the roles that have pods, in the order of the command's help."""
    for role in ROLES:
        spec = {"type": role.type, "pod_count": 1, **specs.get(role.type, {}), **specs.get(EVERY_ROLE, {})}
        if role.type in specs and spec["pod_count"] != 0:
            yield spec


def _items(value: Value) -> list[Value]:
    return [each.strip() if isinstance(each, str) else each for each in split_at(value, ",") if each != ""]


def _packages(value: Value) -> list[Value]:
    """Splits packages; a comma in front of a comparison belongs to a version: `numpy>=1,<3`."""
    packages: list[Value] = []
    for item in _items(value):
        if packages and isinstance(item, str) and item[0] in "<>=!~":
            packages[-1] = joined(packages[-1], ",", item)
        else:
            packages.append(item)
    return packages


def _map(value: Value) -> dict[Any, Value]:
    """Reads `k=v,k2=v2`; a part without `=` belongs to the value before it."""
    pairs: dict[Any, Value] = {}
    last: Any = None
    for item in split_at(value, ","):
        key, *values = split_at(item, "=", 1)
        if values:
            last = key.strip() if isinstance(key, str) else key
            pairs[last] = values[0]
        elif last is not None:
            pairs[last] = joined(pairs[last], ",", item)
        elif isinstance(item, Computed):  # all pairs are in a variable
            pairs[item] = ""
    return pairs


def _data_set(value: Value) -> dict[str, Any]:
    """Reads `d-id`, `d-id:version`, `d-id:/path` or `d-id:version:/path`."""
    identifier, *more = split_at(value, ":", 2)
    path = more.pop() if more and (len(more) == 2 or _is_path(more[-1])) else None
    version = more[0] if more and more[0] != "" else None
    source = {"data_source_id": identifier, "data_source_version": version, "mount_path": path}
    return {name: each for name, each in source.items() if each is not None}


def _is_path(value: Value) -> bool:
    start = value if isinstance(value, str) else value.parts[0]
    return isinstance(start, str) and start.startswith("/")


def _uris(value: Value) -> list[Value]:
    """Splits URIs with paths; a comma is part of a path unless a scheme or an expression follows it."""
    uris: list[Value] = []
    for item in _items(value):
        start = item if isinstance(item, str) else item.parts[0]
        if uris and isinstance(start, str) and not re.match(r"[A-Za-z][\w+.-]*://", start):
            uris[-1] = joined(uris[-1], ",", item)
        else:
            uris.append(item)
    return uris


def _mount(value: Value) -> dict[str, Any]:
    uri, *path = split_at(value, "::", 1)
    return {"uri": uri, "mount_path": path[0]} if path else {"uri": uri}


def _with_unit(value: Value) -> Value:
    """Adds the unit that the older generation of the command left out."""
    return f"{value}Gi" if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value) else value


def _minutes(seconds: Any) -> Any:
    return -(-seconds // 60) if isinstance(seconds, int) else seconds


def _printable(value: Value) -> str:
    return value if isinstance(value, str) else source_of(value)
