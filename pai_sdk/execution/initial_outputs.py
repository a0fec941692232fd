"""What a job's outputs held when it began: files of an earlier job, sent again only where this one changes them.

That is not just for speed. Another job may go on from the same checkpoints meanwhile, and what it has saved must
not be replaced by the copies that this one began with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeAlias

from pai_sdk.agent.sandbox import RESUMED_CHANNELS, Sandbox
from pai_sdk.base.files import replace_file
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.storage.walk import list_folder

__all__ = ["Version", "note_resumed", "read_resumed", "version_of"]

Version: TypeAlias = tuple[int, int]
"""When a file was changed last, in nanoseconds, and its size."""


def version_of(status: os.stat_result) -> Version:
    """What changes with a file."""
    return status.st_mtime_ns, status.st_size


def note_resumed(sandbox: Sandbox, request: TrainingJobRequest) -> None:
    """Write down what lies in the outputs now, for who brings the outputs to their URIs; the job has not begun."""
    lines = [json.dumps([name, path, *version]) + "\n" for name, path, version in _found(sandbox, request)]
    replace_file(sandbox.resumed_file, "".join(lines), mode=0o666)


def read_resumed(sandbox: Sandbox) -> dict[tuple[str, str], Version]:
    """The files that were there, by channel and path. What cannot be read was not there: it is sent once more."""
    known: dict[tuple[str, str], Version] = {}
    with suppress(OSError, ValueError), sandbox.resumed_file.open(encoding="ascii") as lines:
        for line in lines:
            name, path, changed_ns, size_bytes = json.loads(line)
            known[name, path] = changed_ns, size_bytes
    return known


def _found(sandbox: Sandbox, request: TrainingJobRequest) -> Iterator[tuple[str, str, Version]]:
    for name in {channel.name for channel in request.output_channels} & RESUMED_CHANNELS:
        folder = sandbox.output_dir(name)
        for file in list_folder(folder).files:
            yield name, file.path, version_of((folder / file.path).stat())
