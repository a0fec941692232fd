"""What the routes of runs read from: a manager, the logs, and what happened to a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeAlias

from fastapi import Depends, Request

from pai_sdk.run.layout import RunLayout
from pai_sdk.service.runs.run_answers import AnswerCache
from pai_sdk.service.runs.run_log import RunLog

if TYPE_CHECKING:
    from pai_sdk.run.manager import RunManager

__all__ = ["MarkKind", "RunMark", "RunSource", "RunsOf", "checkpoint_marks", "is_inside"]

MarkKind: TypeAlias = Literal["status", "event", "checkpoint", "not_finite"]


@dataclass(frozen=True)
class RunMark:
    """Something that happened to a run, for the x axis of its curves.

    Attributes:
        kind: a new status of its job, an event of its job, a checkpoint, or the first value of a metric that is
        not
            finite.
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
        answers: the last answers, for those who ask the same again.
        longest_stream_s: after which an event stream ends; its client connects again, with its cursor.
    """

    answers: AnswerCache
    longest_stream_s: float

    @property
    def manager(self) -> RunManager:
        """The manager; it is started at the first use."""
        ...

    @property
    def is_closing(self) -> bool:
        """Whether event streams are to end."""
        ...

    def log(self, run_id: str, instance: str | None) -> RunLog:
        """The log of a run.

        Args:
            run_id: which run.
            instance: one of its instances; all of them without it.

        Raises:
            Fault: there is no such run, or no such instance.
        """
        ...

    def marks(self, run_id: str) -> Sequence[RunMark]:
        """What happened to a run, besides its metrics; empty where nothing is known."""
        ...


def is_inside(path: Path, root: Path) -> bool:
    """Whether a path is within a folder when all links are followed: what a training writes may be a link."""
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


async def _source(request: Request) -> RunSource:
    source: RunSource = request.app.state.context.runs
    return source


RunsOf = Annotated[RunSource, Depends(_source)]
"""A parameter of a route: where runs are read from."""
