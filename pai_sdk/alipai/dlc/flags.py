"""The `dlc` command's flags as the body of CreateJob, with values that only the script knows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pai_sdk._wire.dlc.names import job_type_for
from pai_sdk.alipai.dlc.submissions import Submission, read_vendor_submission
from pai_sdk.alipai.dlc.values import Computed, Value, as_number, joined, source_of, split_at

__all__ = ["read_submission"]

# Flag: path in the body. Numbers, maps and lists are named below.
_FIELDS = {
    "name": "DisplayName",
    "command": "UserCommand",
    "workspace_id": "WorkspaceId",
    "resource_id": "ResourceId",
    "priority": "Priority",
    "description": "Description",
    "envs": "Envs",
    "tags": "Settings.Tags",
    "code_source": "CodeSource.CodeSourceId",
    "code_branch": "CodeSource.Branch",
    "code_commit": "CodeSource.Commit",
    "thirdparty_libs": "ThirdpartyLibs",
    "thirdparty_lib_dir": "ThirdpartyLibDir",
    "vpc_id": "UserVpc.VpcId",
    "switch_id": "UserVpc.SwitchId",
    "security_group_id": "UserVpc.SecurityGroupId",
    "extended_cidrs": "UserVpc.ExtendedCIDRs",
    "default_route": "UserVpc.DefaultRoute",
    "job_max_running_time_minutes": "JobMaxRunningTimeMinutes",
    "running_timeout": "running_timeout",
    "job_reserved_minutes": "Settings.JobReservedMinutes",
    "job_reserved_policy": "Settings.JobReservedPolicy",
    "oversold_type": "Settings.OversoldType",
    "driver": "Settings.Driver",
    "success_policy": "SuccessPolicy",
    "advanced_settings": "Settings.AdvancedSettings",
    "aimaster_enable": "Settings.EnableErrorMonitoringInAIMaster",
    "aimaster_args": "Settings.ErrorMonitoringArgs",
    "image_repo_username": "ImageConfig.Username",
    "image_repo_password": "ImageConfig.Password",
}
_NUMBERS = ("priority", "job_max_running_time_minutes", "running_timeout", "job_reserved_minutes")
_MAPS = ("envs", "tags", "advanced_settings")
_LISTS = ("thirdparty_libs", "extended_cidrs")
_REPEATABLE = (*_MAPS, *_LISTS, "data_sources", "data_source_uris", "role")
_FLAGS = ("aimaster_enable", "interactive", "chief", "quiet", "force")
_SHORT = {"n": "name", "w": "workspace_id", "c": "config", "a": "access_id", "k": "access_key"}
_SHORT |= {"e": "endpoint", "r": "region"}
_CONNECTION = ("access_id", "access_key", "endpoint", "region", "protocol", "config")
_ENDPOINT = re.compile(r"pai-dlc(?:-vpc)?\.([a-z]+-[a-z0-9-]+)\.aliyuncs")
_WITHOUT_EFFECT = ("enable_priority_preemption", "enable_preemptible_job")

# Flag of the count: type of the role, and what its other flags begin with.
_ROLES = {
    "chief": ("Chief", "chief"),
    "masters": ("Master", "master"),
    "heads": ("Head", "head"),
    "ps": ("PS", "ps"),
    "workers": ("Worker", "worker"),
    "evaluators": ("Evaluator", "evaluator"),
    "graphlearns": ("GraphLearn", "graphlearn"),
}
_OF_ROLE = {
    "image": "Image",
    "spec": "EcsSpec",
    "cpu": "ResourceConfig.CPU",
    "gpu": "ResourceConfig.GPU",
    "gpu_type": "ResourceConfig.GPUType",
    "memory": "ResourceConfig.Memory",
    "shared_memory": "ResourceConfig.SharedMemory",
}
_MEMORY = ("memory", "shared_memory")
_OLD_COUNTS = {"worker_count": "workers", "master_count": "masters", "ps_count": "ps"}
_ROLE_FLAGS = {f"{prefix}_{name}": (role, name) for role, prefix in _ROLES.values() for name in _OF_ROLE}


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
    submission.body["JobType"] = job_type or ("PyTorchJob" if kind == "BatchJob" else kind)
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
        elif flag in _FLAGS or not waiting or (isinstance(waiting[0], str) and waiting[0].startswith("--")):
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
    for flag, value in flags.items():
        flag = _OLD_COUNTS.get(flag, flag)
        if flag in _FIELDS:
            _put(body, _FIELDS[flag], _converted(flag, value))
        elif flag in _ROLES:
            count = 1 if value == "true" else 0 if value == "false" else as_number(value)
            specs.setdefault(_ROLES[flag][0], {})["PodCount"] = count
        elif flag in _ROLE_FLAGS:
            role, name = _ROLE_FLAGS[flag]
            _put(specs.setdefault(role, {}), _OF_ROLE[name], _with_unit(value) if name in _MEMORY else value)
        elif flag == "data_sources":
            body.setdefault("DataSources", []).extend(map(_data_set, _items(value)))
            if any(isinstance(each, Computed) and each.only for each in _items(value)):
                submission.notes.append("a variable may name several data sets: each is a mount of its own")
        elif flag == "data_source_uris":
            body.setdefault("DataSources", []).extend(map(_mount, _uris(value)))
        else:
            _other(submission, flag, value)
    body["JobSpecs"] = list(_specs(specs, body.pop("ImageConfig", None)))
    _complete(body)


def _complete(body: dict[str, Any]) -> None:
    """Puts data sets first, as the command does, and finds the limit of the running time."""
    if "DataSources" in body:
        body["DataSources"].sort(key=lambda source: "Uri" in source)
    seconds = body.pop("running_timeout", None)
    if seconds is not None:
        body.setdefault("JobMaxRunningTimeMinutes", _minutes(seconds))
    if body.get("JobMaxRunningTimeMinutes") == 0:  # no limit
        del body["JobMaxRunningTimeMinutes"]


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
    elif flag in _WITHOUT_EFFECT and value == "false":
        return
    elif flag not in (*_CONNECTION, "kind", "job_file", "params_file", "exit_code_on_stopped"):
        all_flags = [*_FIELDS, *_ROLES, *_ROLE_FLAGS, "data_sources", "data_source_uris", "interactive"]
        near = difflib.get_close_matches(flag, all_flags, 1, 0.75)
        hint = f"; did you mean --{near[0]}?" if near else ""
        submission.notes.append(f"--{flag} {_printable(value)} is not translated{hint}")


def _converted(flag: str, value: Value) -> Any:
    if flag in _NUMBERS:
        return as_number(value)
    if flag in _MAPS:
        return _map(value)
    if flag in _LISTS:
        return _packages(value) if flag == "thirdparty_libs" else _items(value)
    return value == "true" if flag in _FLAGS and isinstance(value, str) else value


def _specs(specs: Mapping[str, dict[str, Any]], image_config: Any) -> Iterator[dict[str, Any]]:
    """Yields the roles that have pods, in the order of the command's help."""
    for role, _ in _ROLES.values():
        spec = specs.get(role)
        if spec is None or spec.setdefault("PodCount", 1) == 0:
            continue
        if image_config is not None:
            spec["ImageConfig"] = image_config
        yield {"Type": role, **spec}


def _put(target: dict[str, Any], path: str, value: Any) -> None:
    *folders, name = path.split(".")
    for folder in folders:
        target = target.setdefault(folder, {})
    target[name] = value


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
    source: dict[str, Any] = {"DataSourceId": identifier}
    if len(more) == 2 or (more and not _is_path(more[0])):
        source |= {"DataSourceVersion": more[0]} if more[0] != "" else {}
    if more and (len(more) == 2 or _is_path(more[0])):
        source["MountPath"] = more[-1]
    return source


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
    return {"Uri": uri, "MountPath": path[0]} if path else {"Uri": uri}


def _with_unit(value: Value) -> Value:
    """Adds the unit that the older generation of the command left out."""
    return f"{value}Gi" if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value) else value


def _minutes(seconds: Any) -> Any:
    return -(-seconds // 60) if isinstance(seconds, int) else seconds


def _printable(value: Value) -> str:
    return value if isinstance(value, str) else source_of(value)
