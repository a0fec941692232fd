"""Checks what a CreateJob mounts: data sources and code."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator

from pai_sdk._wire.dlc.checking.problems import BodyProblem, choice_problem, path_problem
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.sources import DataSource
from pai_sdk._wire.dlc.uris import uri_problem

__all__ = ["mount_problems", "options_problem"]

_SAME_PATH = "different datasource can't have the same mount path"  # the text of the cloud


def mount_problems(job: NewJob) -> Iterator[BodyProblem]:
    """Yields the problems of each mount, and of mounts at one path."""
    for index, source in enumerate(job.data_sources):
        yield from _source_problems(f"DataSources[{index}]", source)
    code = job.code_source
    if code is not None:
        if code.code_source_id is None:
            yield BodyProblem("CodeSource.CodeSourceId", "is required", "register the repository, and give its id")
        yield from path_problem("CodeSource.MountPath", code.mount_path)
    paths = [(f"DataSources[{index}]", each.mount_path) for index, each in enumerate(job.data_sources)]
    if code is not None:
        paths.append(("CodeSource", code.mount_path))
    owners: dict[str, str] = {}
    for where, path in paths:
        if path is not None:
            owner = owners.setdefault(posixpath.normpath(path), where)
            if owner != where:
                yield BodyProblem(f"{where}.MountPath", _SAME_PATH, f"{path} is that of {owner}")


def _source_problems(where: str, source: DataSource) -> Iterator[BodyProblem]:
    if source.data_source_id is not None and source.uri is not None:
        yield BodyProblem(where, "has DataSourceId and Uri", "give only one of them")
    elif source.data_source_id is None and source.uri is None:
        yield BodyProblem(where, "has neither DataSourceId nor Uri", "give one of them")
    if source.uri is not None:
        if problem := uri_problem(source.uri):
            yield BodyProblem(f"{where}.Uri", problem)
        if source.mount_path is None:
            yield BodyProblem(f"{where}.MountPath", "is required", "only a data set has a default")
        if source.data_source_version is not None:
            yield BodyProblem(f"{where}.DataSourceVersion", "is of data sets only, not of a Uri")
    yield from path_problem(f"{where}.MountPath", source.mount_path)
    yield from choice_problem(f"{where}.MountAccess", source.mount_access, ("RO", "RW"))
    yield from options_problem(f"{where}.Options", source.options)


def options_problem(where: str, options: str | None) -> list[BodyProblem]:
    """Returns the problem of options that are no JSON object as text; none if they are not set."""
    if options is None:
        return []
    try:
        is_object = isinstance(json.loads(options), dict)
    except (ValueError, RecursionError):
        is_object = False
    return (
        []
        if is_object
        else [BodyProblem(where, "expected a JSON object as a string", 'such as \'{"mountType":"ossfs"}\'')]
    )
