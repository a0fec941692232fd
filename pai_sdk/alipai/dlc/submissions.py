"""A job that a script submits; that of the command `pai dlc job submit`, and of a body of CreateJob."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pai_sdk.alipai.dlc.values import Value, as_number, split_at

__all__ = ["Submission", "read_body", "read_vendor_submission"]

_FIELDS = {
    "name": "DisplayName",
    "command": "UserCommand",
    "job_type": "JobType",
    "workspace_id": "WorkspaceId",
    "resource_id": "ResourceId",
}
_OF_ROLE = {"image": "Image", "spec": "EcsSpec", "count": "PodCount"}
_SIZES = {"cpu": "CPU", "gpu": "GPU", "gpu_type": "GPUType", "memory": "Memory", "shared_memory": "SharedMemory"}
_WORKER = {"worker_spec": "spec", "worker_count": "count"} | {name: name for name in ("image", *_SIZES)}


@dataclass
class Submission:
    """One job that is submitted. `waits` where the script waits for its end."""

    body: dict[str, Any] = field(default_factory=dict)
    region: Value | None = None
    waits: bool = False
    notes: list[str] = field(default_factory=list)


def read_vendor_submission(flags: Mapping[str, Value], files: Mapping[Value, Value]) -> Submission:
    """Reads the flags of `pai dlc job submit`; those beside a body win over its fields."""
    submission = Submission({"JobType": "PyTorchJob"})
    if "body_json" in flags:
        submission = read_body(flags["body_json"], files)
    submission.region = flags.get("region")
    body = submission.body
    body |= {_FIELDS[name]: value for name, value in flags.items() if name in _FIELDS}
    roles = [_role(text, flags) for text in split_at(flags.get("role", ""), "\n") if text != ""]
    worker = {_WORKER[name]: value for name, value in flags.items() if name in _WORKER}
    if roles or worker.keys() - {"image"}:
        body["JobSpecs"] = roles or [_spec("Worker", worker)]
    read = {*_FIELDS, *_WORKER, "role", "body_json", "region", "dry_run", "output", "o", "profile"}
    submission.notes += [f"--{name} is not translated" for name in flags if name not in read]
    return submission


def read_body(text: Value, files: Mapping[Value, Value]) -> Submission:
    """Reads a body of CreateJob, or `@FILE` with one."""
    content = files.get(text[1:]) if isinstance(text, str) and text.startswith("@") else text
    try:
        body = json.loads(content) if isinstance(content, str) else None
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return Submission({}, notes=["the body is not there as JSON: what it sets is missing"])
    return Submission(body)


def _role(text: Value, flags: Mapping[str, Value]) -> dict[str, Any]:
    """Reads `NAME:count=2,gpu=8,image=…`."""
    name, *settings = split_at(text, ":", 1)
    pairs = [split_at(each, "=", 1) for each in (split_at(settings[0], ",") if settings else [])]
    values = {str(pair[0]).replace("-", "_"): pair[1] for pair in pairs if len(pair) == 2}
    return _spec(name, {"image": flags["image"], **values} if "image" in flags else values)


def _spec(name: Value, values: Mapping[str, Value]) -> dict[str, Any]:
    spec: dict[str, Any] = {"Type": name, "PodCount": as_number(values.get("count", "1"))}
    spec |= {_OF_ROLE[key]: value for key, value in values.items() if key in ("image", "spec")}
    size = {_SIZES[key]: value for key, value in values.items() if key in _SIZES}
    return spec | ({"ResourceConfig": size} if size else {})
