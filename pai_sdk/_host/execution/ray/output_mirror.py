"""Copies the outputs of a job, and its mounts, from its nodes into the job's folder on this machine.

A file appears complete, by a rename. If instances on several nodes write the same path, the file of the lowest
rank wins. The version of each local file is recorded, so the next process continues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pai_sdk._core.files import replace_file
from pai_sdk._host.agent.remote.file_parts import Entry, FileInfo, pack, path_within, remove
from pai_sdk._host.agent.sandbox import Sandbox

_GROWING = ("tensorboard", "trace")  # channels whose files only grow: only the new tail is read


class Source(Protocol):
    """An instance that returns all outputs of the job on its node."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the `HostedInstance`."""
        ...


class FileMirror:
    """Sends the files of one job to its nodes, and fetches what the job has changed in outputs and mounts."""

    def __init__(self, sandbox: Sandbox, mounts: Sequence[Mapping[str, str]]) -> None:
        numbers = range(len(mounts))
        # Both left out for a job without mounts: hosts with an earlier release of the agent know none.
        self.mount_count: tuple[int, ...] = (len(mounts),) if mounts else ()
        self._sent: list[tuple[Path, tuple[int, ...]]] = [
            (sandbox.ml, ()),
            *((sandbox.mount_dir(number), (number,)) for number in numbers),
        ]
        self._outputs = OutputMirror(sandbox)
        self._mounts = [OutputMirror(sandbox, number) for number in numbers if mounts[number]["access"] == "RW"]

    def parts(self) -> Iterator[tuple[list[Entry], tuple[int, ...]]]:
        """Yields all files in parts, each with the number of its mount, if it has one."""
        for folder, mount in self._sent:
            yield from ((part, mount) for part in pack(folder))

    def update(self, sources: Sequence[tuple[int, Source]], channels: Collection[str] | None = None) -> None:
        """Fetches the changes of the outputs, of these channels only, and of mounts that the job may change."""
        self._outputs.update(sources, channels)
        for mount in self._mounts:
            mount.update(sources)


class OutputMirror:
    """Mirrors the outputs of one job, or one of its mounts. One thread at a time calls `update`."""

    def __init__(self, sandbox: Sandbox, mount: int | None = None) -> None:
        self._folder = sandbox.ml / "output" if mount is None else sandbox.mount_dir(mount)
        self._mount = () if mount is None else (mount,)
        self._drafts = sandbox.state_dir / "drafts"
        self._mirrored_file = sandbox.state_dir / ("mirrored.json" if mount is None else f"mirrored-{mount}.json")
        self._mirrored: dict[str, list[Any]] = {}
        with suppress(FileNotFoundError):
            self._mirrored = json.loads(self._mirrored_file.read_text())

    def update(self, sources: Sequence[tuple[int, Source]], channels: Collection[str] | None = None) -> None:
        """Fetches changed files, and removes files that the job has removed."""
        # `sources` has one instance of each node, with its rank, in rank order. Files of other nodes stay.
        current: dict[str, tuple[int, Source, FileInfo]] = {}
        removed_paths: list[str] = []
        for number, (rank, source) in enumerate(sources):
            selected = None if channels is None else sorted(channels)
            changed, removed = source.call("outputs", selected, *self._mount)
            for path, properties in changed.items():
                current.setdefault(path, (rank, source, properties))
            # Any instance can remove a file of a mount, since each node had all of them.
            removed_paths += [] if number and not self._mount else removed
        try:
            for path, (rank, source, properties) in sorted(current.items()):
                if self._mirrored.get(path) != [rank, properties]:
                    self._fetch(path, rank, source, properties)
            ranks = {rank for rank, _ in sources}
            for path, (rank, _) in list(self._mirrored.items()):
                if rank in ranks and path not in current and _is_in(path, channels):
                    remove(path_within(self._folder, path))
                    del self._mirrored[path]
            for path in removed_paths:
                if path not in current:
                    remove(path_within(self._folder, path))
        finally:
            replace_file(self._mirrored_file, json.dumps(self._mirrored))

    def _fetch(self, path: str, rank: int, source: Source, properties: FileInfo) -> None:
        # A channel: its local folder belongs to the service, and is never a link.
        if "/" not in path and not self._mount:
            if properties == ["folder"]:
                (self._folder / path).mkdir(exist_ok=True)
            return
        target = path_within(self._folder, path)
        if properties[0] == "file":
            self._fetch_file(path, target, rank, source, properties)
        elif properties[0] == "link":
            remove(target)
            target.symlink_to(properties[1])
        elif target.is_symlink() or not target.is_dir():
            remove(target)
            target.mkdir()
        self._mirrored[path] = [rank, properties]

    def _fetch_file(self, path: str, target: Path, rank: int, source: Source, properties: FileInfo) -> None:
        _, size_bytes, mtime_ns, mode = properties
        local_bytes = self._local_size(path, target, rank)
        is_growing = path.partition("/")[0] in _GROWING and not self._mount
        is_appended = is_growing and local_bytes is not None and local_bytes <= size_bytes
        self._drafts.mkdir(exist_ok=True)
        draft = target if is_appended else self._drafts / "file"
        with draft.open("ab" if is_appended else "wb") as file:
            offset = local_bytes if is_appended and local_bytes is not None else 0
            while offset < size_bytes and (chunk := source.call("read_output", path, offset, *self._mount)):
                file.write(chunk[: size_bytes - offset])
                offset += len(chunk)
        draft.chmod(mode)
        os.utime(draft, ns=(mtime_ns, mtime_ns))
        if not is_appended:
            if target.is_dir() and not target.is_symlink():
                remove(target)
            # A rename replaces files and links, but not a folder.
            draft.replace(target)

    def _local_size(self, path: str, target: Path, rank: int) -> int | None:
        """Returns the size of the local file, if it is a prefix of the remote one."""
        mirrored = self._mirrored.get(path)
        if mirrored is None or mirrored[0] != rank or mirrored[1][0] != "file" or target.is_symlink():
            return None
        try:
            size_bytes = target.stat().st_size
        except OSError:
            return None
        return size_bytes if size_bytes == mirrored[1][1] else None


def _is_in(path: str, channels: Collection[str] | None) -> bool:
    return channels is None or path.partition("/")[0] in channels
