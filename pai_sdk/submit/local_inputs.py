"""Paths of this machine as inputs and outputs, for backends whose jobs see them where they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pai_sdk.backend.base import Backend
from pai_sdk.base.paths import expanded
from pai_sdk.schemas.spec import InputChannel, OutputChannel
from pai_sdk.storage.uri import uri_scheme
from pai_sdk.submit.channels import InputSource, OutputTarget

__all__ = ["seen_as_inputs", "seen_as_outputs", "seen_as_place"]


def seen_as_inputs(inputs: Mapping[str, InputSource], backend: Backend) -> dict[str, InputSource]:
    """The inputs, with what lies on this machine as it is; what does not exist is left for the usual check."""
    seen: dict[str, InputSource] = {}
    for name, source in inputs.items():
        path = _path(source)
        uri = backend.local_uri(path, folder=path.is_dir()) if path and _is_there(path) else None
        seen[name] = source if uri is None else InputChannel(name=name, input_uri=uri)
    return seen


def seen_as_outputs(outputs: Mapping[str, OutputTarget], backend: Backend) -> dict[str, OutputTarget]:
    """The outputs, with folders of this machine as they are."""
    seen: dict[str, OutputTarget] = {}
    for name, target in outputs.items():
        path = _path(target)
        uri = backend.local_uri(path, folder=True) if path else None
        seen[name] = target if uri is None else OutputChannel(name=name, output_uri=uri)
    return seen


def seen_as_place(target: str, backend: Backend) -> str | None:
    """The URI of a folder of this machine that outputs can go to; None for all that is none."""
    path = _path(target)
    return backend.local_uri(path, folder=True) if path else None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have; the usual check tells so
        return False


def _path(given: object) -> Path | None:
    """The path that somebody means, if it is one."""
    if isinstance(given, str) and uri_scheme(given) == "file":
        return Path(unquote(urlsplit(given).path))
    name = os.fspath(given) if isinstance(given, os.PathLike) else given
    if isinstance(name, str) and name and (name is not given or uri_scheme(name) is None):
        return expanded(name).absolute()
    return None
