"""The JSON schema of job files, for editors; made from the classes that the files describe.

The published copy is made by `python -m pai_sdk._client.submit.job_file_schema > docs/job-file.schema.json`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import cleandoc
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter

from pai_sdk._client.backend.dlc.options import DlcOptions
from pai_sdk._client.experiment import Experiment
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submit.job_file import KINDS, parameters_of
from pai_sdk._client.submit.parameters import JobParameters, Role
from pai_sdk._client.submit.submitter import JobSubmitter
from pai_sdk._data.rules.rules import RULES, Rule
from pai_sdk._wire.pai.compute import ExperimentConfig, InstanceSpec, Settings, SpotSpec, UserVpcConfig
from pai_sdk._wire.pai.secret_values import Secret
from pai_sdk._wire.pai.spec import AlgorithmSpec, Channel, MetricDefinition

_TEXT_BY_NAME = {"type": "object", "additionalProperties": {"type": "string"}}
_SCALAR_BY_NAME = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_FILE_KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "inputs": (
        _TEXT_BY_NAME,
        "Maps each input channel to its source: a URI, a local file or folder, the id of a dataset.",
    ),
    "outputs": (_TEXT_BY_NAME, "Maps each output channel to its destination: a URI, or the id of a dataset."),
    "job_name": ({"type": "string"}, "The job's name; otherwise a readable one, such as train-lr0.1-3f2a9c."),
}
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def job_file_schema() -> dict[str, Any]:
    """Builds the JSON schema of job files."""
    definitions: dict[str, Any] = {}
    for name, kind in KINDS.items():
        definitions[name] = _kind_schema(kind, definitions)
    is_kind = {name: {"properties": {"kind": {"const": name}}, "required": ["kind"]} for name in KINDS}
    default = {"anyOf": [{"not": {"required": ["kind"]}}, is_kind["Estimator"]]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A job for `pai-sdk run`",
        "type": "object",
        "properties": {
            "kind": {
                "enum": list(KINDS),
                "default": "Estimator",
                "description": "What the file describes: a training, or a Processor.",
            }
        },
        "allOf": [
            {"if": default if name == "Estimator" else is_kind[name], "then": {"$ref": f"#/$defs/{name}"}}
            for name in KINDS
        ],
        "$defs": dict(sorted(definitions.items())),
    }


def _kind_schema(kind: type[JobSubmitter], definitions: dict[str, Any]) -> dict[str, Any]:
    hints = _hints(kind)
    described = _descriptions(JobParameters) | _descriptions(kind)
    properties: dict[str, Any] = {"kind": {"const": kind.__name__}}
    for name in parameters_of(kind):
        if name in _FILE_KEYS:
            schema, description = _FILE_KEYS[name]
        elif name == "roles":
            schema, description = _roles_schema(definitions), described[name]
        elif name == "watch":
            schema, description = _rules_schema(definitions), described[name]
        elif name in ("input_channels", "output_channels"):
            schema, description = (
                _schema(Sequence[str | Channel], definitions),
                f"The {name.replace('_', ' ')} of the job.",
            )
        else:
            is_scalar = name in ("environments", "labels")
            schema = _SCALAR_BY_NAME if is_scalar else _schema(_of_files(hints[name]), definitions)
            description = described.get(name, "")
        properties[name] = {**schema, "description": description}
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _roles_schema(definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of roles by name; pydantic cannot resolve hints that exist for type checkers only."""
    described = _descriptions(Role)
    properties = {
        name: {**_schema(_of_files(hint), definitions), "description": described[name]}
        for name, hint in _hints(Role).items()
    }
    definitions["Role"] = {
        "title": "Role",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {"type": "object", "additionalProperties": {"$ref": "#/$defs/Role"}}


def _rules_schema(definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of rules; the key `rule` names the kind of each one."""
    for rule in RULES:
        described = _descriptions(Rule) | _descriptions(rule)
        properties = {
            name: {**_schema(_of_files(hint), definitions), "description": described[name]}
            for name, hint in get_type_hints(rule).items()
            if name != "code"
        }
        definitions[rule.__name__] = {
            "title": rule.__name__,
            "type": "object",
            "properties": {"rule": {"const": rule.code}, **properties},
            "required": ["rule"],
            "additionalProperties": False,
        }
    rules = {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/{rule.__name__}"} for rule in RULES]}}
    return {"anyOf": [{"type": "boolean"}, rules]}


def _hints(kind: type[JobSubmitter] | type[Role]) -> dict[str, Any]:
    names: dict[str, Any] = {
        each.__name__: each for each in (ExperimentConfig, InstanceSpec, Settings, SpotSpec, UserVpcConfig)
    }
    names |= {each.__name__: each for each in (AlgorithmSpec, Channel, DlcOptions, MetricDefinition, Experiment)}
    names |= {each.__name__: each for each in (Role, Rule, Secret, TrainingJob)}
    absent = dict.fromkeys(("Session", "AlgorithmChoice", "Notification", "Plan"), Any)
    return get_type_hints(kind, localns={**names, **absent})


def _of_files(hint: Any) -> Any:
    """Returns the type of a value in a file: strings for paths, no null, no mapping if its fields are known."""
    if get_origin(hint) in (Union, types.UnionType):
        variants = [_of_files(each) for each in get_args(hint)]
        variants = [each for each in variants if each not in _NOT_IN_FILES]
        has_model = any(isinstance(each, type) and issubclass(each, BaseModel) for each in variants)
        variants = [each for each in variants if not (has_model and get_origin(each) in _MAPPINGS)]
        return Union[tuple(variants)]  # noqa: UP007 - made from a list
    if get_origin(hint) is os.PathLike or hint is os.PathLike:
        return os.PathLike
    if get_origin(hint) in _SEQUENCES:
        return Sequence[_of_files(get_args(hint)[0])]  # type: ignore[misc]
    return hint


_NOT_IN_FILES = (os.PathLike, Experiment, TrainingJob, types.NoneType)
_MAPPINGS = (Mapping, get_origin(Mapping[str, str]), dict)
_SEQUENCES = (Sequence, get_origin(Sequence[str]), list)


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = TypeAdapter(hint).json_schema(by_alias=False, ref_template="#/$defs/{model}")
    definitions.update(schema.pop("$defs", {}))
    model = schema.pop("title", None)
    if model and schema.get("type") == "object" and "properties" in schema:
        definitions[model] = {"title": model, **schema}
        return {"$ref": f"#/$defs/{model}"}
    return schema


def _descriptions(kind: type) -> dict[str, str]:
    """Returns the descriptions of a class's attributes from its docstring."""
    _, _, attributes = cleandoc(kind.__doc__ or "").partition("Attributes:")
    matches = _ATTRIBUTE.finditer(attributes.partition("Example:")[0])
    descriptions = {each[1]: " ".join(each[2].split()) for each in matches}
    return {name: text[:1].upper() + text[1:] for name, text in descriptions.items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(job_file_schema(), ensure_ascii=False, indent=1) + "\n")
