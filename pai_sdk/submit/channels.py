"""From what a user gives as inputs and outputs to the channels of a request, and the files to upload for them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pai_sdk.backend.base import Backend, Upload
from pai_sdk.base.paths import expanded
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.filesystems import FileSystemInputBase
from pai_sdk.schemas.names import variable_name
from pai_sdk.schemas.spec import Channel, DatasetConfig, InputChannel, OutputChannel
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri, remote_uri_problems, uri_scheme
from pai_sdk.submit.problems import Problems

__all__ = [
    "InputSource",
    "OutputTarget",
    "channel_definitions",
    "check_names",
    "input_channels",
    "output_channels",
]

InputSource: TypeAlias = str | os.PathLike[str] | OssUri | FileSystemInputBase | DatasetConfig | InputChannel
"""What an input channel can be filled with: a URI, a local file or folder, a file system, a dataset (or its id as
text, `d-…` or `d-…/version`), or the channel itself."""

OutputTarget: TypeAlias = str | OssUri | FileSystemInputBase | DatasetConfig | OutputChannel
"""Where an output channel can go: a URI, a file system, a dataset (or its id as text), or the channel itself."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_DATASET = re.compile(r"(d-[a-z0-9]{12,})(?:/([A-Za-z0-9_.-]+))?")
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


def input_channels(
    inputs: Mapping[str, InputSource],
    definitions: Sequence[Channel],
    backend: Backend,
    problems: Problems,
    *,
    region_id: str | None = None,
) -> tuple[list[InputChannel], list[Upload]]:
    """Resolve the inputs of one job. Local files are hashed, and get the URI they will be uploaded to."""
    check_names([*inputs], "inputs", problems)
    _check_defined(inputs, definitions, "inputs", problems)
    for definition in definitions:
        if definition.required and definition.name not in inputs:
            problems.add(f"inputs[{definition.name!r}]", "is required and missing")
    channels: list[InputChannel] = []
    uploads: list[Upload] = []
    for name, source in inputs.items():
        with problems.under(f"inputs[{name!r}]"):
            channel, upload = _input(name, source, backend, region_id)
            channels.append(channel)
            uploads += [upload] if upload else []
    return channels, uploads


def _input(
    name: str, given: InputSource, backend: Backend, region_id: str | None
) -> tuple[InputChannel, Upload | None]:
    source = _as_uri_or_dataset(given, region_id)
    if isinstance(source, InputChannel):
        return source.model_copy(update={"name": name}), None
    if isinstance(source, DatasetConfig):
        if isinstance(given, str) and Path(given).exists():
            hint = f"write './{given}' for the file, DatasetConfig(dataset_id=…) for the dataset"
            raise InvalidInputError([Problem("", f"{given!r} is the id of a dataset, and a file here", hint)])
        return InputChannel(name=name, **source.model_dump()), None
    if not isinstance(source, (str, os.PathLike)):
        raise _wrong_type(source, "a URI, a local path or a DatasetConfig")
    if isinstance(source, str) and uri_scheme(source) is not None:
        _refuse_wrong(source)
        return InputChannel(name=name, input_uri=source), None
    if not os.fspath(source):
        # It would be the current folder, with all that lies in it.
        raise InvalidInputError([Problem("", "is empty", "give a URI, a local path or a DatasetConfig")])
    path = expanded(source)
    if not path.exists():
        raise InvalidInputError([Problem("", f"no such file or folder: {source}", _near(path))])
    tree = FileTree.scan(path)
    if not tree.entries:
        raise InvalidInputError([Problem("", f"the folder {source} is empty")])
    folder = backend.place(tree, "input")
    uri = folder if path.is_dir() else folder + tree.entries[0].path
    return InputChannel(name=name, input_uri=uri), Upload(tree, folder)


def output_channels(
    outputs: Mapping[str, OutputTarget],
    definitions: Sequence[Channel],
    default: Callable[[str], str],
    problems: Problems,
    *,
    region_id: str | None = None,
) -> list[OutputChannel]:
    """Resolve the outputs of one job; every defined channel that was given no place gets the default one."""
    check_names([*outputs], "outputs", problems)
    _check_defined(outputs, definitions, "outputs", problems)
    channels: list[OutputChannel] = []
    for name in dict.fromkeys([*(definition.name for definition in definitions), *outputs]):
        with problems.under(f"outputs[{name!r}]"):
            channels.append(_output(name, outputs.get(name), default, region_id))
    return channels


def _output(
    name: str, given: OutputTarget | None, default: Callable[[str], str], region_id: str | None
) -> OutputChannel:
    target = given if given is None else _as_uri_or_dataset(given, region_id)
    if target is None:
        return OutputChannel(name=name, output_uri=default(name))
    if isinstance(target, OutputChannel):
        return target.model_copy(update={"name": name})
    if isinstance(target, DatasetConfig):
        known = {"dataset_id": target.dataset_id, "version_name": target.version_name, "role_arn": target.role_arn}
        if target.options is not None:
            raise InvalidInputError([Problem("", "an output dataset takes no options", "leave `options` out")])
        return OutputChannel(name=name, **known)
    if not isinstance(target, str):
        raise _wrong_type(target, "a URI or a DatasetConfig")
    if uri_scheme(target) is None:
        raise InvalidInputError([Problem("", f"{target!r} is not a URI", "outputs go to oss://bucket/folder/")])
    _refuse_wrong(target)
    if uri_scheme(target) in _FOLDER_SCHEMES and not target.endswith("/"):
        target += "/"
    return OutputChannel(name=name, output_uri=target)


def _as_uri_or_dataset(given: Any, region_id: str | None) -> Any:
    """The same thing in one of the forms that a request knows; what is none of ours is left as it is."""
    if isinstance(given, FileSystemInputBase):
        # Theirs may be written for alipai, whose method takes no region.
        ours = type(given).__module__ == FileSystemInputBase.__module__
        return given.to_input_uri(region_id) if ours else given.to_input_uri()
    if isinstance(given, OssUri):
        return str(given)
    if isinstance(given, str) and (dataset := _DATASET.fullmatch(given)):
        return DatasetConfig(dataset_id=dataset[1], version_name=dataset[2])
    return given


def _refuse_wrong(uri: str) -> None:
    """Refuse a URI that the service could not use.

    Raises:
        InvalidInputError: its scheme is not known, or it lacks a part.
    """
    problems = remote_uri_problems(uri, "")
    if problems:
        raise InvalidInputError(problems)


def channel_definitions(given: Sequence[Channel | Mapping[str, Any]], where: str) -> list[Channel]:
    """The channels that an author defines; each name once.

    Raises:
        InvalidInputError: with everything that is wrong with them.
    """
    problems = Problems()
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        problems.add(where, f"is of type {type(given).__name__}", "give a list: [Channel(name='data')]")
        problems.raise_if_any()
    found: list[Channel] = []
    for number, definition in enumerate(given):
        with problems.under(f"{where}[{number}]"):
            found.append(Channel.model_validate(definition))
    names = [channel.name for channel in found]
    check_names(names, where, problems)
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add(f"{where}[{name!r}]", "is there twice", "give each channel a name of its own")
    problems.raise_if_any()
    return found


def _check_defined(
    given: Mapping[str, object], definitions: Sequence[Channel], where: str, problems: Problems
) -> None:
    known = [definition.name for definition in definitions]
    if not known:
        return
    for name in given:
        if name not in known:
            problems.add(f"{where}[{name!r}]", "no such channel", f"there is: {', '.join(known)}")


def _near(path: Path) -> str:
    from difflib import get_close_matches

    if not path.parent.is_dir():
        return ""
    near = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def _wrong_type(value: object, wanted: str) -> InvalidInputError:
    return InvalidInputError([Problem("", f"is of type {type(value).__name__}", f"give {wanted}")])
