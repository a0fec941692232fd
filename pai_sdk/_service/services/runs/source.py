"""The source of the routes of runs: a manager, the logs, and the events of a run."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias

from fastapi import Depends, Request

from pai_sdk._data.logs.reader import LogReader
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.runs.responses import ResponseCache, RowCache
from pai_sdk._service.settings import Pace

if TYPE_CHECKING:
    from pai_sdk._data.run.watch.manager import RunManager

NO_LOG = "RUN_LOG_NOT_FOUND"
"""Error code: a run has no log, or no log of this instance."""

ROOT_FOLDER = ""
"""Key of the store with all files of a run, if there is one."""

MarkKind: TypeAlias = Literal["status", "event", "checkpoint", "not_finite"]


@dataclass(frozen=True)
class RunMark:
    """A mark on the x axis of a run's curves, such as a checkpoint or the first NaN of a metric."""

    kind: MarkKind
    text: str
    time: float | None = None  # seconds since 1970, if known
    step: int | None = None  # of the training, if known


class RunSource(Protocol):
    """Runs with their logs, files and marks. Thread-safe."""

    responses: ResponseCache  # for repeated requests
    rows: RowCache  # for lists in which few runs have changed
    max_stream_s: float  # then an event stream ends, and its client reconnects with its cursor
    pace: Pace

    @property
    def manager(self) -> RunManager:
        """Returns the manager; the first use starts it."""
        ...

    @property
    def is_closing(self) -> bool:
        """Returns True if event streams have to end."""
        ...

    def finished_at(self, run_id: str | None) -> float:
        """Returns the monotonic finish time of the run's job, or of the last job (None); -inf without one."""
        ...

    def visible_to(self, principal: Principal) -> RunSource:
        """Returns the source of the runs that a user can see."""
        ...

    def log(self, run_id: str, instance: str | None) -> LogReader:
        """Opens the log of one instance, or of all, merged (None); raises WireError if it does not exist."""
        ...

    def files(self, run_id: str) -> Mapping[str, Store]:
        """Returns the file stores of a run by name; as `ROOT_FOLDER` the one that contains all of them, if any."""
        ...

    def queue_positions(self, run_ids: Collection[str]) -> Mapping[str, tuple[int, str]]:
        """Returns the queue positions of waiting jobs, from 1, and why they wait; empty without a queue."""
        ...

    def marks(self, run_id: str) -> Sequence[RunMark]:
        """Returns the statuses, events and checkpoints of a run."""
        ...


def is_within(path: Path, root: Path) -> bool:
    """Returns True if a path is in a folder after all links are resolved: a training may create links."""
    return path.resolve().is_relative_to(root.resolve())


def checkpoint_marks(folder: Path, root: Path) -> Iterator[RunMark]:
    """Yields the complete checkpoints in a folder; skips links, and folders outside of `root`."""
    if not is_within(folder, root):
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
            continue  # incomplete, or removed since the scan
        yield RunMark("checkpoint", f"checkpoint {step}", saved_at, step)


def folders_in(folder: Path, root: Path, *, only: Sequence[str] = ()) -> dict[str, Store]:
    """Returns the subfolders of a training's folder as stores by name, or only `only`; skips links.

    A folder that lies outside of `root` after all links are resolved has none.
    """
    if not is_within(folder, root):
        return {}
    resolved = folder.resolve()
    try:
        with os.scandir(resolved) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return {}
    return {name: LocalStore(resolved / name, links="inside") for name in names if not only or name in only}


async def _source(request: Request) -> RunSource:
    source: RunSource = request.app.state.context.runs
    return source.visible_to(request.scope["state"]["principal"])


RunsOf = Annotated[RunSource, Depends(_source)]
"""Parameter of a route: the source of runs, limited to what the user can see."""
