"""A job that a script submits; that of the command `pai dlc job submit`, and of a body of CreateJob."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._wire.dlc.field_names import by_python_name
from pai_sdk._wire.dlc.flags import POD_FIELDS, VENDOR_FLAGS, put_field
from pai_sdk.alipai.dlc.values import Value, as_number, split_at

__all__ = ["Submission", "read_body", "read_vendor_submission"]

# The flags have dashes, which are underscores here.
_FLAGS = {flag.name.replace("-", "_"): flag for flag in VENDOR_FLAGS if flag.field}
_READ_ELSEWHERE = ("role", "body_json", "region", "dry_run", "output", "o", "profile")


@dataclass
class Submission:
    """One job that is submitted.

    Attributes:
        body: of CreateJob, by the names in Python or on the wire; its values may be `Computed`.
        waits: whether the script waits for the end of the job.
    """

    body: dict[str, Any] = field(default_factory=dict)
    region: Value | None = None
    waits: bool = False
    notes: list[str] = field(default_factory=list)


def read_vendor_submission(flags: Mapping[str, Value], files: Mapping[Value, Value]) -> Submission:
    """Reads the flags of `pai dlc job submit`; those beside a body win over its fields."""
    submission = Submission({"job_type": "PyTorchJob"})
    if "body_json" in flags:
        submission = read_body(flags["body_json"], files)
        submission.body = by_python_name(submission.body)
    submission.region = flags.get("region")
    fields = {name: value for name, value in flags.items() if name in _FLAGS}
    submission.body |= {_FLAGS[name].field: value for name, value in fields.items() if not _FLAGS[name].role}
    roles = [_role(text, flags) for text in split_at(flags.get("role", ""), "\n") if text != ""]
    worker = {_FLAGS[name].field: value for name, value in fields.items() if _FLAGS[name].role}
    if roles or worker.keys() - {"image"}:
        submission.body["job_specs"] = roles or [_spec("Worker", worker)]
    submission.notes += [
        f"--{name} is not translated" for name in flags if name not in _FLAGS and name not in _READ_ELSEWHERE
    ]
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
    image = {"image": flags["image"]} if "image" in flags else {}
    fields = {POD_FIELDS[key]: value for key, value in values.items() if key in POD_FIELDS}
    return _spec(name, {**image, **fields})


def _spec(name: Value, fields: Mapping[str, Value]) -> dict[str, Any]:
    spec: dict[str, Any] = {"type": name}
    for path, value in {"pod_count": "1", **fields}.items():
        put_field(spec, path, as_number(value) if path == "pod_count" else value)
    return spec
