"""The source of the routes of runs: a manager, the logs, and the events of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias

from fastapi import Depends, Request

from pai_sdk.logs.reader import LogReader
from pai_sdk.run.report.layout import RunLayout
from pai_sdk.service.identity.principal import Principal
from pai_sdk.service.runs.responses import ResponseCache, RowCache
from pai_sdk.storage.base import Store
from pai_sdk.storage.stores.local import LocalStore

if TYPE_CHECKING:
    from pai_sdk.run.watch.manager import RunManager

__all__ = [
    "NO_LOG",
    "WHOLE_FOLDER",
    "MarkKind",
    "RunMark",
    "RunSource",
    "RunsOf",
    "checkpoint_marks",
    "folders_in",
    "is_inside",
]

NO_LOG = "RUN_LOG_NOT_FOUND"
"""The code of the error that a run has no log, or not that of an instance."""

WHOLE_FOLDER = ""
"""The name of the store that has all files of a run, where there is one."""

MarkKind: TypeAlias = Literal["status", "event", "checkpoint", "not_finite"]


@dataclass(frozen=True)
class RunMark:
    """Something that happened to a run, for the x axis of its curves.

    Attributes:
        kind: a new status of its job, an event of its job, a checkpoint, or the first value of a metric that
            is not finite.
        text: for people.
        time: seconds since 1970, where it is known.
        step: of the training, where it is known.
    """

    kind: MarkKind
    text: str
    time: float | None = None
    step: int | None = None


class RunSource(Protocol):
    """Runs, and what belongs to them. Safe to use from several threads.

    Attributes:
        responses: the last ones, kept, for requests that are repeated.
        rows: those of the last list, kept, for lists in which few runs have changed.
        longest_stream_s: after which an event stream ends; its client connects again, with its cursor.
    """

    responses: ResponseCache
    rows: RowCache
    longest_stream_s: float

    @property
    def manager(self) -> RunManager:
        """The manager; it is started at the first use."""
        ...

    @property
    def is_closing(self) -> bool:
        """True if event streams are to end."""
        ...

    def finished_at(self, run_id: str | None) -> float:
        """When the job of a run finished, or the last one of all jobs, by the monotonic clock.

        Minus infinity where none has finished since the service started.
        """
        ...

    def seen_by(self, principal: Principal) -> RunSource:
        """The same runs, as far as a user can see them."""
        ...

    def log(self, run_id: str, instance: str | None) -> LogReader:
        """The log of a run.

        Args:
            run_id: which run.
            instance: one of its instances; all of them without it.

        Raises:
            WireError: there is no such run, or no such instance.
        """
        ...

    def files(self, run_id: str) -> Mapping[str, Store]:
        """The folders of files that a run has left, by name, such as its output channels and its logs.

        Where all of them are in one folder, that is there too, as `WHOLE_FOLDER`.

        Raises:
            WireError: there is no such run.
        """
        ...

    def queue_places(self) -> Mapping[str, int]:
        """The places of the jobs in the queue, from 1, by the ids of their runs; empty without a queue."""
        ...

    def marks(self, run_id: str) -> Sequence[RunMark]:
        """The statuses, events and checkpoints of a run; empty if none is known."""
        ...


def is_inside(path: Path, root: Path) -> bool:
    """Returns True if a path is within a folder when all links are followed: a training may write links."""
    return path.resolve().is_relative_to(root.resolve())


def checkpoint_marks(folder: Path, root: Path) -> Iterator[RunMark]:
    """The complete checkpoints in a folder of them; a link is none, nor is anything outside of `root`."""
    if not is_inside(folder, root):
        return
    layout = RunLayout(str(folder.parent))
    try:
        with os.scandir(folder) as entries:
            steps = sorted(
                step
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and (step := RunLayout.step_of(entry.name)) is not None
            )
    except OSError:
        return
    for step in steps:
        try:
            saved_at = os.lstat(layout.checkpoint_marker(step)).st_mtime
        except OSError:
            continue  # it is not complete, or was just removed
        yield RunMark("checkpoint", f"checkpoint {step}", saved_at, step)


def folders_in(folder: Path, root: Path, *, only: Sequence[str] = ()) -> dict[str, Store]:
    """The folders in a folder of a training, by name; links are left out, and so is what is outside of `root`.

    Args:
        folder: of the training.
        root: what it must be in, when all links are followed.
        only: names of the wanted ones; all by default.
    """
    if not is_inside(folder, root):
        return {}
    place = folder.resolve()
    try:
        with os.scandir(place) as entries:
            found = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return {}
    return {name: LocalStore(place / name, links="inside") for name in found if not only or name in only}


async def _source(request: Request) -> RunSource:
    source: RunSource = request.app.state.context.runs
    return source.seen_by(request.scope["state"]["principal"])


RunsOf = Annotated[RunSource, Depends(_source)]
"""A parameter of a route: where runs are read from."""
