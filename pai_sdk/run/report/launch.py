"""The checkpoint that all processes of one launch of a job resume from, however late each of them asks.

Rank 0 saves the checkpoints that the other ranks read. A rank that starts late must not resume from one that
rank 0 of its own launch has saved meanwhile. So in a job of several processes, the marker has the launch:

    "launch": {"id": "5f0c…", "job": "train-1", "step": 300, "is_open": false}

`id` is that of the process of rank 0 that saved it, and `step` the checkpoint that this process resumed from. A
checkpoint is open if all other ranks had asked before it was begun. The other ranks see open checkpoints and those
of other launches. In place of any other checkpoint they get that of `step`.

Each other rank leaves a note in its folder `rank-<number>` when it asks. Rank 0 reads the notes, to know when all
have asked. A rank also reads its own note after a restart within the job, as torchrun does it: if a rank has asked
in a launch, and another process of this rank asks, then that launch has ended, and its newest checkpoint counts.
One case is not told apart: a restart within the job before rank 0 has saved anything. A rank that is late then may
get a newer checkpoint, unless the environment has the number of the restart.

Everything is in the folder of checkpoints, since instances of a job may share nothing else. This module is shipped
with jobs: standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pai_sdk.base.files import replace_file
from pai_sdk.errors import CheckpointError
from pai_sdk.run.report.checkpoints import Checkpoint, latest_checkpoint, read_checkpoint
from pai_sdk.run.report.layout import RunLayout

__all__ = ["Launch"]

logger = logging.getLogger(__name__)


class Launch:
    """One process of a job of several processes, as far as checkpoints of rank 0 go. Safe for several threads.

    Args:
        folder: the checkpoints of rank 0.
        job_id: of the job.
        rank: of this process.
        world_size: how many processes the job has.
        variables: the environment, for what a launcher of processes says in it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first, second = (Launch(Path(folder), "train-1", rank, 2, {}) for rank in (0, 1))
        ...     before = first.stamp()["is_open"]
        ...     before, second.resume_point(), first.stamp()["is_open"]
        (False, None, True)
    """

    def __init__(
        self, folder: Path, job_id: str, rank: int, world_size: int, variables: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._world_size = world_size
        self._id = uuid.uuid4().hex
        self._job = _job_of(job_id, world_size, variables)
        self._lock = threading.Lock()
        # Of rank 0: what it resumes from, the launch that saved that, and the first rank that has not asked yet.
        self._has_begun = False
        self._start: Checkpoint | None = None
        self._launch_before: str | None = None
        self._next_rank = 1
        self._is_released = False
        # Of the others: the launch that the first answer was about, and whether that one had ended.
        self._first: tuple[str | None, bool] | None = None

    def renew_lock(self) -> None:
        """After a fork: a thread of the parent may hold the lock for ever."""
        self._lock = threading.Lock()

    # ---- rank 0

    def begin(self, newest: Checkpoint | None) -> None:
        """Note what rank 0 resumes from. Only the first call counts, which is before its first checkpoint."""
        with self._lock:
            self._begin(newest)

    def stamp(self) -> Mapping[str, Any]:
        """The launch as the marker of a checkpoint has it that rank 0 begins now."""
        with self._lock:
            if not self._has_begun:
                self._begin(latest_checkpoint(self._folder))
            is_open = self._have_all_asked()
            return {"id": self._id, "job": self._job, "step": _step_of(self._start), "is_open": is_open}

    def saved(self, stamp: Mapping[str, Any]) -> None:
        """A checkpoint with this stamp is complete. From the first open one on, others go on from newer ones."""
        if stamp["is_open"]:
            self._is_released = True

    @property
    def held(self) -> Path | None:
        """The folder of the checkpoint that late ranks still have to find."""
        return None if self._start is None or self._is_released else self._start.path

    def _begin(self, newest: Checkpoint | None) -> None:
        if not self._has_begun:
            self._has_begun, self._start = True, newest
            before = self._of_this_job(newest)
            self._launch_before = None if before is None else before["id"]

    def _have_all_asked(self) -> bool:
        while self._next_rank < self._world_size:
            note = self._note_of(self._next_rank)
            if note.get("job") != self._job:
                return False
            # It asked before the first checkpoint of this launch, and so has the same one; or after that.
            is_same_start = (note.get("launch"), note.get("step")) == (self._launch_before, _step_of(self._start))
            if note.get("launch") != self._id and not is_same_start:
                return False
            self._next_rank += 1
        return True

    # ---- the other ranks

    def resume_point(self) -> Checkpoint | None:
        """The checkpoint of rank 0 that this rank sees.

        Raises:
            CheckpointError: it was removed, so this rank cannot begin where rank 0 has begun.
        """
        newest, launch = self._asked()
        if launch is None:
            return newest
        if launch["step"] is None:
            return None
        found = read_checkpoint(self._folder / str(launch["step"]))
        if found is None:
            raise CheckpointError(
                f"rank {self._rank} cannot begin where rank 0 of this launch has begun: the checkpoint of step "
                f"{launch['step']} in {self._folder} was removed; start all processes again"
            )
        return found

    def step_of_rank_0(self) -> int | None:
        """The step that rank 0 of this launch resumes from, as far as this rank sees it; None without one."""
        newest, launch = self._asked()
        return _step_of(newest) if launch is None else launch["step"]

    def note(self) -> None:
        """Let rank 0 know that this rank has its start."""
        with contextlib.suppress(OSError):  # without the note, rank 0 keeps the checkpoint that it began with
            self._asked()

    def _asked(self) -> tuple[Checkpoint | None, Mapping[str, Any] | None]:
        """The newest checkpoint of rank 0, and its launch if this rank must not see it."""
        newest = latest_checkpoint(self._folder)
        launch = self._of_this_job(newest)
        with self._lock:
            has_ended = launch is not None and self._has_ended(launch)
            seen_id = None if launch is None else launch["id"]
            is_hidden = launch is not None and not launch["is_open"] and not has_ended
            if self._first is None:
                self._first = (seen_id, has_ended)
                hidden_step = launch["step"] if launch is not None else None
                self._leave_note(seen_id, hidden_step if is_hidden else _step_of(newest))
        if is_hidden and newest is not None:
            logger.info(
                "step %s was saved in this launch; it is hidden until all ranks have asked for a checkpoint",
                newest.step,
            )
        return newest, launch if is_hidden else None

    def _has_ended(self, launch: Mapping[str, Any]) -> bool:
        """True if a launch of this job is an earlier one, since an earlier process of this rank was part of it."""
        if self._first is not None:
            # A launch whose first checkpoint came after the first answer is this one.
            return self._first == (launch["id"], True)
        note = self._note_of(self._rank)
        if note.get("job") != self._job or note.get("process") == self._id:
            return False
        return bool(note.get("launch") == launch["id"] or note.get("step") == launch["step"])

    def _leave_note(self, launch_id: str | None, step: int | None) -> None:
        path = self._note_path(self._rank)
        note = {"job": self._job, "process": self._id, "launch": launch_id, "step": step}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(note), mode=0o666, draft=path.with_name(_hidden("draft")))
        except OSError as error:  # rank 0 keeps the checkpoint for this rank then
            logger.info("rank %s cannot record that it has asked for its checkpoint: %s", self._rank, error)

    # ---- both

    def _of_this_job(self, checkpoint: Checkpoint | None) -> Mapping[str, Any] | None:
        """The launch of a checkpoint, if it may be this one."""
        launch = None if checkpoint is None else checkpoint.launch
        if launch is None or launch.get("job") != self._job:
            return None
        step = launch.get("step")
        is_valid = isinstance(launch.get("id"), str) and isinstance(launch.get("is_open"), bool)
        return launch if is_valid and (step is None or isinstance(step, int)) else None

    def _note_path(self, rank: int) -> Path:
        return Path(RunLayout.of_rank(str(self._folder), rank), _hidden("note"))

    def _note_of(self, rank: int) -> Mapping[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._note_path(rank).read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
        return {}


def _hidden(name: str) -> str:
    """A name that no store lists, so that the file is in no output (`storage.leftovers`)."""
    return f".pai-sdk-{zlib.crc32(os.fsencode(f'launch-{name}')):016x}.part"


def _step_of(checkpoint: Checkpoint | None) -> int | None:
    return None if checkpoint is None else checkpoint.step


def _job_of(job_id: str, world_size: int, variables: Mapping[str, str]) -> str:
    """The part of the environment that distinguishes launches.

    torchrun counts restarts for each node, so the count is the same in all processes only where there is one node.
    """
    restarts = variables.get("TORCHELASTIC_RESTART_COUNT")
    is_one_node = variables.get("LOCAL_WORLD_SIZE") == str(world_size)
    return f"{job_id}/{restarts}" if restarts and is_one_node else job_id
