"""Converts the inputs and outputs of a call to channels of a request, and lists the files to upload."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from pai_sdk._client.backend.base import Backend, Upload
from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.names.hints import did_you_mean, nearest, type_problem, wrong_type
from pai_sdk._core.names.peer_names import value_hint
from pai_sdk._core.paths import expanded
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri, remote_uri_problems, uri_scheme
from pai_sdk._wire.pai.filesystems import FileSystemInputBase
from pai_sdk._wire.pai.names import name_problems
from pai_sdk._wire.pai.spec import Channel, DatasetConfig, InputChannel, OutputChannel
from pai_sdk.errors import InvalidInputError, Problem

InputSource: TypeAlias = str | os.PathLike[str] | OssUri | FileSystemInputBase | DatasetConfig | InputChannel
"""Sources of an input channel: a URI, a local file or folder, a file system, a dataset (or its id as
text, `d-…` or `d-…/version`), or the channel itself."""

OutputTarget: TypeAlias = str | OssUri | FileSystemInputBase | DatasetConfig | OutputChannel
"""Targets of an output channel: a URI, a file system, a dataset (or its id as text), or the channel itself."""

DATASET = re.compile(r"(d-[a-z0-9]{12,})(?:/([A-Za-z0-9_.-]+))?")
_T = TypeVar("_T")
_FOLDER_SCHEMES = ("oss", "nas", "cpfs", "bmcpfs")


class ChannelResolver:
    """Resolves the inputs and outputs of one job."""

    def __init__(self, backend: Backend, region_id: str | None, problems: Problems) -> None:
        self.uploads: list[Upload] = []  # local files of the inputs resolved so far
        self._backend = backend
        self._region_id = region_id
        self._problems = problems

    def resolve_inputs(
        self, inputs: Mapping[str, InputSource] | None, definitions: Sequence[Channel]
    ) -> list[InputChannel]:
        """Returns the input channels of the request. Local files are hashed and get the URIs of their uploads."""
        inputs = self._checked(inputs, definitions, "inputs")
        for definition in definitions:
            if definition.required and definition.name not in inputs:
                self._problems.add(f"inputs[{definition.name!r}]", "is required")
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
        *,
        may_add: bool = False,
    ) -> list[OutputChannel]:
        """Returns the output channels of the request; each defined channel gets a target."""
        # Without `may_add`, only defined channels are allowed.
        outputs = dict(self._checked(outputs, () if may_add else definitions, "outputs"))
        for name, (parameter, uri) in from_parameters.items():
            if name in outputs:
                self._problems.add(parameter, f"conflicts with outputs[{name!r}]", "give only one of them")
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

    def output_uri(self, target: str, parameter: str) -> str | None:
        """Returns the URI of an output folder, given as URI or local path; None after a recorded problem."""
        local_uri = self._local_output(target)
        if local_uri is not None:
            return local_uri
        wrong = remote_uri_problems(target, parameter)
        self._problems.entries += wrong
        return None if wrong else target

    def _checked(
        self, channels: Mapping[str, _T] | None, definitions: Sequence[Channel], where: str
    ) -> Mapping[str, _T]:
        """Returns the inputs or outputs of a call without invalid ones, which become problems."""
        if channels is not None and not isinstance(channels, Mapping):
            self._problems.add(where, type_problem("a mapping", channels), "of channel names to URIs or paths")
            channels = None
        channels = channels or {}
        self._problems.entries += name_problems(channels, where)
        defined = [definition.name for definition in definitions]
        for name in channels if defined else ():
            if name not in defined:
                self._problems.add(f"{where}[{name!r}]", "no such channel", f"available: {', '.join(defined)}")
        return channels

    def _resolve_input(self, name: str, source: InputSource) -> InputChannel:
        """Resolves a source: a local URI, otherwise a URI or dataset of the service, otherwise an upload."""
        if isinstance(source, InputChannel):
            return source.model_copy(update={"name": name})
        path = _local_path(source)
        exists = path is not None and path.exists()
        local_uri = self._backend.local_uri(path, folder=path.is_dir()) if path and exists else None
        if local_uri is not None:
            return InputChannel(name=name, input_uri=local_uri)
        remote = self._remote(source)
        if isinstance(remote, DatasetConfig):
            if exists:
                hint = f"write './{source}' for the file, DatasetConfig(dataset_id=…) for the dataset"
                raise InvalidInputError(
                    [Problem("", f"{source!r} is both the id of a dataset and a local path", hint)]
                )
            return InputChannel(name=name, **remote.model_dump())
        if remote is not None:
            return InputChannel(name=name, input_uri=remote)
        if not isinstance(source, str | os.PathLike):
            raise InvalidInputError([wrong_type("", source, "a URI, a local path or a DatasetConfig")])
        if not os.fspath(source):
            # It would be the current folder, with all that lies in it.
            raise InvalidInputError([Problem("", "is empty", "give a URI, a local path or a DatasetConfig")])
        if path is None or not exists:
            raise InvalidInputError([_missing_source(source, path)])
        tree = FileTree.scan(path, links="follow")  # data is where the user keeps it, such as a cache of links
        if not tree.entries:
            raise InvalidInputError([Problem("", f"the folder {source} is empty")])
        upload = Upload(tree, self._backend.tree_uri(tree, "input"))
        self.uploads.append(upload)
        return InputChannel(name=name, input_uri=upload.uri + ("" if path.is_dir() else tree.entries[0].path))

    def _local_output(self, target: OutputTarget) -> str | None:
        """Returns the URI of a local folder that the jobs of the backend can access; None for other targets."""
        path = _local_path(target)
        return None if path is None else self._backend.local_uri(path, folder=True)

    def _resolve_output(self, name: str, target: OutputTarget) -> OutputChannel:
        if isinstance(target, OutputChannel):
            return target.model_copy(update={"name": name})
        local_uri = self._local_output(target)
        if local_uri is not None:
            return OutputChannel(name=name, output_uri=local_uri)
        remote = self._remote(target)
        if isinstance(remote, DatasetConfig):
            if remote.options is not None:
                raise InvalidInputError([Problem("", "an output dataset takes no options", "leave `options` out")])
            return OutputChannel(name=name, **remote.model_dump(exclude={"options"}))
        if remote is None and isinstance(target, str):
            hint = "outputs go to oss://bucket/folder/"
            raise InvalidInputError([Problem("", f"{target!r} is not a URI", hint)])
        if remote is None:
            raise InvalidInputError([wrong_type("", target, "a URI or a DatasetConfig")])
        if uri_scheme(remote) in _FOLDER_SCHEMES and not remote.endswith("/"):
            remote += "/"
        return OutputChannel(name=name, output_uri=remote)

    def _remote(self, source: InputSource | OutputTarget) -> str | DatasetConfig | None:
        """Returns the URI or dataset that the service reads itself; None for a local path or a wrong type."""
        if isinstance(source, DatasetConfig):
            return source
        if isinstance(source, FileSystemInputBase):
            # A subclass may be written for alipai, whose method takes no region.
            takes_region = type(source).__module__ == FileSystemInputBase.__module__
            source = source.to_input_uri(self._region_id) if takes_region else source.to_input_uri()
        elif isinstance(source, OssUri):
            source = str(source)
        elif not isinstance(source, str):
            return None
        if dataset := DATASET.fullmatch(source):
            return DatasetConfig(dataset_id=dataset[1], version_name=dataset[2])
        if uri_scheme(source) is None:
            return None
        if problems := remote_uri_problems(source, ""):
            raise InvalidInputError(problems)
        return source


def _local_path(source: InputSource | OutputTarget) -> Path | None:
    """Returns the local path of a `file:` URI, a string or a path object; None for anything else."""
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    elif isinstance(source, str) and (scheme := uri_scheme(source)) is not None:
        return Path(unquote(urlsplit(source).path)) if scheme == "file" else None
    return expanded(source) if isinstance(source, str) and source else None


def channel_definitions(channels: Sequence[Channel | Mapping[str, Any]], where: str) -> list[Channel]:
    """Returns the channel definitions of a submitter, whose names are unique; reports all problems."""
    problems = Problems()
    if not isinstance(channels, Sequence) or isinstance(channels, str | bytes):
        problems.add(where, type_problem("a list", channels), "such as [Channel(name='data')]")
        problems.raise_if_any()
    checked: list[Channel] = []
    for number, definition in enumerate(channels):
        with problems.under(f"{where}[{number}]"):
            checked.append(Channel.model_validate(definition))
    names = [channel.name for channel in checked]
    problems.entries += name_problems(names, where)
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(f"{where}[{name!r}]", "is defined more than once", "give each channel a name of its own")
    problems.raise_if_any()
    return checked


def _missing_source(source: str | os.PathLike[str], path: Path | None) -> Problem:
    """Returns the problem of an input that is neither a URI nor an existing path."""
    if (wrong := value_hint(source)) is not None:
        return Problem("", *wrong)
    siblings = path.parent.iterdir() if path is not None and path.parent.is_dir() else ()
    hint = did_you_mean(nearest(path.name, (entry.name for entry in siblings))) if path else ""
    return Problem("", f"no such file or folder: {source}", hint)
