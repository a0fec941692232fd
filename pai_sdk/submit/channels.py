"""Turns the inputs and outputs that a user gives into channels of a request, and lists the files to upload."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from pai_sdk.backend.base import Backend, Upload
from pai_sdk.base.hints import did_you_mean, is_of_type, nearest, wrong_type
from pai_sdk.base.paths import expanded
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.filesystems import FileSystemInputBase
from pai_sdk.schemas.names import variable_name
from pai_sdk.schemas.spec import Channel, DatasetConfig, InputChannel, OutputChannel
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri, remote_uri_problems, uri_scheme
from pai_sdk.submit.parameter_types import type_problem
from pai_sdk.submit.problems import Problems

__all__ = ["ChannelResolver", "InputSource", "OutputTarget", "channel_definitions", "check_names"]

InputSource: TypeAlias = str | os.PathLike[str] | OssUri | FileSystemInputBase | DatasetConfig | InputChannel
"""What an input channel can be filled with: a URI, a local file or folder, a file system, a dataset (or its id as
text, `d-…` or `d-…/version`), or the channel itself."""

OutputTarget: TypeAlias = str | OssUri | FileSystemInputBase | DatasetConfig | OutputChannel
"""Where an output channel can go: a URI, a file system, a dataset (or its id as text), or the channel itself."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_DATASET = re.compile(r"(d-[a-z0-9]{12,})(?:/([A-Za-z0-9_.-]+))?")
_T = TypeVar("_T")
_FOLDER_SCHEMES = ("oss", "nas", "cpfs", "bmcpfs")


def check_names(names: Sequence[str], where: str, problems: Problems, *, pattern: re.Pattern[str] = _NAME) -> None:
    """Names must be usable as folders and variables, and stay apart once they are variables."""
    taken: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not pattern.fullmatch(name):
            problems.add(
                f"{where}[{name!r}]", "not a usable name", "letters, digits, '_', '-' and '.', no digit first"
            )
            continue
        other = taken.setdefault(variable_name(name), name)
        if other != name:
            problems.add(
                f"{where}[{name!r}]",
                f"becomes the same variable as {other!r} ({variable_name(name)})",
                "rename one",
            )


class ChannelResolver:
    """Resolves the inputs and outputs of one job.

    Args:
        backend: runs the job; says where its jobs see local files, or where local files are uploaded to.
        region_id: of the session; some file systems need it.
        problems: collects what is wrong.

    Attributes:
        uploads: the local files to upload for the inputs resolved so far.
    """

    def __init__(self, backend: Backend, region_id: str | None, problems: Problems) -> None:
        self.uploads: list[Upload] = []
        self._backend = backend
        self._region_id = region_id
        self._problems = problems

    def resolve_inputs(
        self, inputs: Mapping[str, InputSource] | None, definitions: Sequence[Channel]
    ) -> list[InputChannel]:
        """The input channels of the request. Local files are hashed, and get the URI they will be uploaded to."""
        inputs = self._checked(inputs, definitions, "inputs")
        for definition in definitions:
            if definition.required and definition.name not in inputs:
                self._problems.add(f"inputs[{definition.name!r}]", "is required and missing")
        channels: list[InputChannel] = []
        for name, source in inputs.items():
            with self._problems.under(f"inputs[{name!r}]"):
                channels.append(self._resolve_input(name, source))
        return channels

    def resolve_outputs(
        self,
        outputs: Mapping[str, OutputTarget] | None,
        definitions: Sequence[Channel],
        from_parameters: Mapping[str, tuple[str, str]],
        default_uri: Callable[[str], str],
    ) -> list[OutputChannel]:
        """The output channels of the request.

        Args:
            outputs: output channel to target, as given to the call.
            definitions: every defined channel gets a target.
            from_parameters: targets that parameters set: channel to (parameter, URI).
            default_uri: the URI of a channel that was given no target.
        """
        outputs = dict(self._checked(outputs, definitions, "outputs"))
        for name, (parameter, uri) in from_parameters.items():
            if name in outputs:
                self._problems.add(parameter, f"contradicts outputs[{name!r}]", "give one of them")
            if (checked := self.output_uri(uri, parameter)) is not None:
                outputs[name] = checked
        channels: list[OutputChannel] = []
        for name in dict.fromkeys([*(definition.name for definition in definitions), *outputs]):
            with self._problems.under(f"outputs[{name!r}]"):
                target = outputs.get(name)
                channels.append(
                    OutputChannel(name=name, output_uri=default_uri(name))
                    if target is None
                    else self._resolve_output(name, target)
                )
        return channels

    def output_uri(self, uri: str, parameter: str) -> str | None:
        """The URI of a folder for outputs, given as URI or local path; None, with the reason noted, if wrong."""
        path = _local_path(uri)
        local_uri = self._backend.local_uri(path, folder=True) if path else None
        if local_uri is not None:
            return local_uri
        wrong = remote_uri_problems(uri, parameter)
        self._problems.found += wrong
        return None if wrong else uri

    def _checked(
        self, given: Mapping[str, _T] | None, definitions: Sequence[Channel], where: str
    ) -> Mapping[str, _T]:
        """The inputs or outputs of a call; wrong names are noted. Anything but a dict is noted and left out."""
        if given is not None and not isinstance(given, Mapping):
            self._problems.add(where, type_problem(given), "give a dict: channel to what it holds")
            given = None
        given = given or {}
        check_names([*given], where, self._problems)
        defined = [definition.name for definition in definitions]
        for name in given if defined else ():
            if name not in defined:
                self._problems.add(f"{where}[{name!r}]", "no such channel", f"there is: {', '.join(defined)}")
        return given

    def _resolve_input(self, name: str, source: InputSource) -> InputChannel:
        path = _local_path(source)
        if path is not None and path.exists():
            local_uri = self._backend.local_uri(path, folder=path.is_dir())
            if local_uri is not None:
                return InputChannel(name=name, input_uri=local_uri)
        resolved = self._as_uri_or_dataset(source)
        if isinstance(resolved, InputChannel):
            return resolved.model_copy(update={"name": name})
        if isinstance(resolved, DatasetConfig):
            if path is not None and path.exists():
                hint = f"write './{source}' for the file, DatasetConfig(dataset_id=…) for the dataset"
                raise InvalidInputError([Problem("", f"{source!r} is the id of a dataset, and a file here", hint)])
            return InputChannel(name=name, **resolved.model_dump())
        if isinstance(resolved, str) and uri_scheme(resolved) is not None:
            return InputChannel(name=name, input_uri=_checked_uri(resolved))
        if not isinstance(source, (str, os.PathLike)):
            raise InvalidInputError([wrong_type("", source, "give a URI, a local path or a DatasetConfig")])
        if not os.fspath(source):
            # It would be the current folder, with all that lies in it.
            raise InvalidInputError([Problem("", "is empty", "give a URI, a local path or a DatasetConfig")])
        if path is None or not path.exists():
            siblings = path.parent.iterdir() if path is not None and path.parent.is_dir() else ()
            hint = did_you_mean(nearest(path.name, (entry.name for entry in siblings))) if path else ""
            raise InvalidInputError([Problem("", f"no such file or folder: {source}", hint)])
        return InputChannel(name=name, input_uri=self._upload(source))

    def _upload(self, source: str | os.PathLike[str]) -> str:
        """Note a local file or folder for upload; returns the URI it will have."""
        path = expanded(source)
        tree = FileTree.scan(path)
        if not tree.entries:
            raise InvalidInputError([Problem("", f"the folder {source} is empty")])
        folder = self._backend.place(tree, "input")
        self.uploads.append(Upload(tree, folder))
        return folder if path.is_dir() else folder + tree.entries[0].path

    def _resolve_output(self, name: str, target: OutputTarget) -> OutputChannel:
        path = _local_path(target)
        local_uri = self._backend.local_uri(path, folder=True) if path else None
        if local_uri is not None:
            return OutputChannel(name=name, output_uri=local_uri)
        target = self._as_uri_or_dataset(target)
        if isinstance(target, OutputChannel):
            return target.model_copy(update={"name": name})
        if isinstance(target, DatasetConfig):
            if target.options is not None:
                raise InvalidInputError([Problem("", "an output dataset takes no options", "leave `options` out")])
            return OutputChannel(name=name, **target.model_dump(exclude={"options"}))
        if not isinstance(target, str):
            raise InvalidInputError([wrong_type("", target, "give a URI or a DatasetConfig")])
        if uri_scheme(target) is None:
            raise InvalidInputError(
                [Problem("", f"{target!r} is not a URI", "outputs go to oss://bucket/folder/")]
            )
        target = _checked_uri(target)
        if uri_scheme(target) in _FOLDER_SCHEMES and not target.endswith("/"):
            target += "/"
        return OutputChannel(name=name, output_uri=target)

    def _as_uri_or_dataset(self, source: Any) -> Any:
        """A file system as its URI, the id of a dataset as a dataset; other values are returned as they are."""
        if isinstance(source, FileSystemInputBase):
            # A subclass may be written for alipai, whose method takes no region.
            takes_region = type(source).__module__ == FileSystemInputBase.__module__
            return source.to_input_uri(self._region_id) if takes_region else source.to_input_uri()
        if isinstance(source, OssUri):
            return str(source)
        if isinstance(source, str) and (dataset := _DATASET.fullmatch(source)):
            return DatasetConfig(dataset_id=dataset[1], version_name=dataset[2])
        return source


def _checked_uri(uri: str) -> str:
    """The URI, when the service can use it.

    Raises:
        InvalidInputError: its scheme is not known, or it lacks a part.
    """
    if problems := remote_uri_problems(uri, ""):
        raise InvalidInputError(problems)
    return uri


def _local_path(source: object) -> Path | None:
    """The absolute local path that a `file:` URI, a text or a path object means; None for anything else."""
    if isinstance(source, str) and uri_scheme(source) == "file":
        return Path(unquote(urlsplit(source).path))
    path = os.fspath(source) if isinstance(source, os.PathLike) else source
    if isinstance(path, str) and path and (path is not source or uri_scheme(path) is None):
        return expanded(path).absolute()
    return None


def channel_definitions(given: Sequence[Channel | Mapping[str, Any]], where: str) -> list[Channel]:
    """The channel definitions of a submitter; each name once.

    Raises:
        InvalidInputError: with everything that is wrong with them.
    """
    problems = Problems()
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        problems.add(where, is_of_type(given), "give a list: [Channel(name='data')]")
        problems.raise_if_any()
    found: list[Channel] = []
    for number, definition in enumerate(given):
        with problems.under(f"{where}[{number}]"):
            found.append(Channel.model_validate(definition))
    names = [channel.name for channel in found]
    check_names(names, where, problems)
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(f"{where}[{name!r}]", "is defined more than once", "give each channel a name of its own")
    problems.raise_if_any()
    return found
