"""Brings the outputs of a job from its nodes into the job's folder on this machine.

A file appears whole, by a rename. If instances on several nodes write the same path, the file of the lowest rank
is taken. Which version of each file is here is written down, so the next process continues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pai_sdk.agent.remote.file_parts import FileFacts, place_of, remove
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import replace_file

__all__ = ["OutputMirror", "Source"]

_GROWING = ("tensorboard", "trace")  # channels whose files only grow: the new end is all that is read


class Source(Protocol):
    """An instance that is asked for all outputs of the job on its node."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of its `HostedInstance`."""
        ...


class OutputMirror:
    """The outputs of one job.

    Args:
        sandbox: the job's folder on this machine.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._folder = sandbox.ml / "output"
        self._drafts = sandbox.state_dir / "drafts"
        self._memory = sandbox.state_dir / "mirrored.json"
        self._known: dict[str, list[Any]] = {}
        with suppress(FileNotFoundError):
            self._known = json.loads(self._memory.read_text())

    def update(self, sources: Sequence[tuple[int, Source]], channels: Collection[str] | None = None) -> None:
        """Fetch what has changed, and remove what the job has removed.

        Args:
            sources: one instance of each node, with its rank, in rank order. Files of a node that is not among
                them stay.
            channels: only these.
        """
        wanted: dict[str, tuple[int, Source, FileFacts]] = {}
        gone: list[str] = []
        for number, (rank, source) in enumerate(sources):
            changed, removed = source.call("outputs", None if channels is None else sorted(channels))
            for path, facts in changed.items():
                wanted.setdefault(path, (rank, source, facts))
            gone += [] if number else removed
        try:
            for path, (rank, source, facts) in sorted(wanted.items()):
                if self._known.get(path) != [rank, facts]:
                    self._fetch(path, rank, source, facts)
            asked = {rank for rank, _ in sources}
            for path, (rank, _) in list(self._known.items()):
                if rank in asked and path not in wanted and _is_in(path, channels):
                    remove(place_of(self._folder, path))
                    del self._known[path]
            for path in gone:
                if path not in wanted:
                    remove(place_of(self._folder, path))
        finally:
            replace_file(self._memory, json.dumps(self._known))

    def _fetch(self, path: str, rank: int, source: Source, facts: FileFacts) -> None:
        if "/" not in path:  # a channel: its folder here is the service's own, and never a link
            if facts == ["folder"]:
                (self._folder / path).mkdir(exist_ok=True)
            return
        place = place_of(self._folder, path)
        if facts[0] == "file":
            self._fetch_file(path, place, rank, source, facts)
        elif facts[0] == "link":
            remove(place)
            place.symlink_to(facts[1])
        elif place.is_symlink() or not place.is_dir():
            remove(place)
            place.mkdir()
        self._known[path] = [rank, facts]

    def _fetch_file(self, path: str, place: Path, rank: int, source: Source, facts: FileFacts) -> None:
        _, size_bytes, mtime_ns, mode = facts
        here = self._size_here(path, place, rank)
        grows = path.partition("/")[0] in _GROWING and here is not None and here <= size_bytes
        self._drafts.mkdir(exist_ok=True)
        draft = place if grows else self._drafts / "file"
        with draft.open("ab" if grows else "wb") as file:
            at = here if grows and here is not None else 0
            while at < size_bytes and (piece := source.call("read_output", path, at)):
                file.write(piece[: size_bytes - at])
                at += len(piece)
        draft.chmod(mode)
        os.utime(draft, ns=(mtime_ns, mtime_ns))
        if not grows:
            if place.is_dir() and not place.is_symlink():
                remove(place)
            draft.replace(place)

    def _size_here(self, path: str, place: Path, rank: int) -> int | None:
        """The size of the file here, if it is the beginning of that on its node."""
        known = self._known.get(path)
        if known is None or known[0] != rank or known[1][0] != "file" or place.is_symlink():
            return None
        try:
            size_bytes = place.stat().st_size
        except OSError:
            return None
        return size_bytes if size_bytes == known[1][1] else None


def _is_in(path: str, channels: Collection[str] | None) -> bool:
    return channels is None or path.partition("/")[0] in channels
