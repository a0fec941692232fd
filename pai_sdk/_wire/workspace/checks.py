"""Checks what a workspace is asked to register: data sets, their versions, code sources, labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from pai_sdk._wire.dlc.checking.problems import BodyProblem, choice_problem, path_problem
from pai_sdk._wire.workspace.code_sources import CodeSourceUpdate, NewCodeSource
from pai_sdk._wire.workspace.datasets import DatasetUpdate, DatasetVersionUpdate, NewDataset, NewDatasetVersion
from pai_sdk._wire.workspace.labels import ResourceLabel

__all__ = [
    "DATA_SOURCE_TYPES",
    "code_source_problems",
    "data_source_type_for",
    "dataset_problems",
    "default_mount_path",
    "label_problems",
]

DATA_SOURCE_TYPES: Final = ("OSS", "NAS", "EXTREMENAS", "CPFS", "BMCPFS", "MAXCOMPUTE", "URL")
_TYPE_OF_SCHEME: Final = {
    "oss": "OSS",
    "nas": "NAS",
    "cpfs": "CPFS",
    "bmcpfs": "BMCPFS",
    "odps": "MAXCOMPUTE",
    "http": "URL",
    "https": "URL",
}
_ACCESSIBILITIES: Final = ("PRIVATE", "PUBLIC", "ROLE_PUBLIC")
_NAME = re.compile(r"[^\W_][\w-]{0,126}")
_MAX_LABEL = 128


def data_source_type_for(uri: str) -> str | None:
    """Returns the DataSourceType of a URI; None for an unknown scheme.

    Example:
        >>> data_source_type_for("oss://bucket.oss-cn-beijing.aliyuncs.com/a/")
        'OSS'
    """
    return _TYPE_OF_SCHEME.get(uri.partition("://")[0].lower())


def default_mount_path(options: str | None) -> str | None:
    """Returns the `mountPath` in the options of a data set, where a job sees it unless it names another path.

    Example:
        >>> default_mount_path('{"mountPath": "/mnt/data/"}')
        '/mnt/data/'
    """
    try:
        content = json.loads(options or "{}")
    except (ValueError, RecursionError):
        return None
    path = content.get("mountPath") if isinstance(content, dict) else None
    return path if isinstance(path, str) and path else None


def dataset_problems(
    dataset: NewDataset | NewDatasetVersion | DatasetUpdate | DatasetVersionUpdate,
) -> list[BodyProblem]:
    """Returns what is wrong with a data set or a version that is created or updated."""
    problems: list[BodyProblem] = []
    if isinstance(dataset, NewDataset | NewDatasetVersion):
        problems += _source_problems(dataset)
    if isinstance(dataset, NewDataset | DatasetUpdate):
        if dataset.name is None and isinstance(dataset, NewDataset):
            problems.append(BodyProblem("Name", "is required"))
        problems += _name_problem("Name", dataset.name)
        problems += choice_problem("Accessibility", dataset.accessibility, _ACCESSIBILITIES)
    if isinstance(dataset, NewDataset | NewDatasetVersion):
        problems += label_problems("Labels", dataset.labels)
    return problems + _options_problems(dataset.options)


def _source_problems(dataset: NewDataset | NewDatasetVersion) -> Iterator[BodyProblem]:
    for where, value in (
        ("Uri", dataset.uri),
        ("DataSourceType", dataset.data_source_type),
        ("Property", dataset.property_type),
    ):
        if value is None:
            yield BodyProblem(where, "is required")
    yield from choice_problem("DataSourceType", dataset.data_source_type, DATA_SOURCE_TYPES)
    yield from choice_problem("Property", dataset.property_type, ("FILE", "DIRECTORY"))
    if dataset.uri is not None and data_source_type_for(dataset.uri) is None:
        yield BodyProblem("Uri", f"{dataset.uri!r} is not a URI such as 'oss://bucket.endpoint/folder/'")


def _options_problems(options: str | None) -> list[BodyProblem]:
    if options is None:
        return []
    try:
        content = json.loads(options)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return [
            BodyProblem("Options", "expected a JSON object as a string", 'such as \'{"mountPath":"/mnt/data"}\'')
        ]
    path = content.get("mountPath")
    return path_problem("Options", str(path)) if path else []


def _name_problem(where: str, name: str | None) -> list[BodyProblem]:
    if name is None or _NAME.fullmatch(name):
        return []
    hint = "1 to 127 letters, digits, '_' and '-', a letter or a digit first"
    return [BodyProblem(where, f"{name[:140]!r} is not a name", hint)]


def code_source_problems(source: NewCodeSource | CodeSourceUpdate) -> list[BodyProblem]:
    """Returns what is wrong with a code source that is created or updated."""
    problems: list[BodyProblem] = []
    if isinstance(source, NewCodeSource):
        for where, value in (
            ("DisplayName", source.display_name),
            ("CodeRepo", source.code_repo),
            ("MountPath", source.mount_path),
        ):
            if value is None:
                problems.append(BodyProblem(where, "is required"))
        problems += choice_problem("Accessibility", source.accessibility, _ACCESSIBILITIES[:2])
    if source.clone_type not in (None, 0, 1):
        problems.append(BodyProblem("CloneType", f"{source.clone_type} is neither 0 nor 1"))
    return problems + path_problem("MountPath", source.mount_path)


def label_problems(where: str, labels: Sequence[ResourceLabel]) -> list[BodyProblem]:
    """Returns what is wrong with labels: each needs a key of its own."""
    problems: list[BodyProblem] = []
    keys = [label.key or "" for label in labels]
    for key in dict.fromkeys(keys):
        if not 1 <= len(key) <= _MAX_LABEL:
            message = f"the key {key[:40]!r} has {len(key)} characters; 1 to {_MAX_LABEL} are allowed"
            problems.append(BodyProblem(where, message))
        elif keys.count(key) > 1:
            problems.append(BodyProblem(where, f"the key {key!r} is defined {keys.count(key)} times"))
    return problems
