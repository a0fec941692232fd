"""The checkpoint that all processes of one launch of a job resume from, however late each of them requests it.

Rank 0 saves the checkpoints that the other ranks read. A rank that starts late must not resume from one that
rank 0 of its own launch has saved meanwhile. So in a job of several processes, the marker has the launch:

    "launch": {"id": "5f0c…", "job": "train-1", "step": 300, "is_open": false}

`id` is that of the process of rank 0 that saved it, and `step` the checkpoint that this process resumed from. A
checkpoint is open if all other ranks had requested theirs before rank 0 started to write it. The other ranks see
open checkpoints and those of other launches. In place of any other checkpoint they get that of `step`.

Each other rank writes a note into its folder `rank-<number>` when it requests a checkpoint. Rank 0 reads the
notes, to know when all ranks have done so. A rank also reads its own note after a restart within the job, as by
torchrun: if the note was written in a launch by another process of this rank, that launch has finished, and its
newest checkpoint counts. One case cannot be distinguished: a restart within the job before rank 0 has saved
anything. A late rank may then get a newer checkpoint, unless the environment has the number of the restart.

All files are in the folder of checkpoints, since instances of a job may share nothing else. This module is shipped
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

from pai_sdk._core.files import replace_file
from pai_sdk._data.run.report.checkpoints import (
    Checkpoint,
    complete_checkpoints,
    latest_checkpoint,
    read_checkpoint,
)
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk.errors import CheckpointError

logger = logging.getLogger(__name__)


class Launch:
    """One process of a job of several processes, and what it knows of the checkpoints of rank 0. Thread-safe."""

    def __init__(
        self, folder: Path, job_id: str, rank: int, world_size: int, variables: Mapping[str, str]
    ) -> None:
        self._folder = folder  # the checkpoints of rank 0
        self._rank = rank
        self._world_size = world_size
        self._id = uuid.uuid4().hex
        # The launcher of processes sets variables, such as the number of a restart.
        self._job = _job_of(job_id, world_size, variables)
        self._lock = threading.Lock()
        # Of rank 0: the checkpoint that it resumes from, the launch that saved it, and the first rank without a
        # request.
        self._has_start = False
        self._start: Checkpoint | None = None
        self._launch_before: str | None = None
        self._next_rank = 1
        self._is_released = False
        # Of other ranks: the launch of the checkpoint that the first request saw, and whether it had finished. It
        # is fixed by the first request, so that all requests of a process get the same checkpoint.
        self._first: tuple[str | None, bool] | None = None

    def renew_lock(self) -> None:
        """Replaces the lock after a fork, in which a thread of the parent may hold it for ever."""
        self._lock = threading.Lock()

    # ---- rank 0

    def record_start(self, newest: Checkpoint | None) -> None:
        """Records the checkpoint that rank 0 resumes from; only the first call counts."""
        with self._lock:
            self._set_start(newest)

    def stamp(self) -> Mapping[str, Any]:
        """Returns the launch for the marker of a checkpoint that rank 0 starts to write now."""
        with self._lock:
            if not self._has_start:
                self._set_start(latest_checkpoint(self._folder))
            is_open = self._have_all_requested()
            return {"id": self._id, "job": self._job, "step": _step_of(self._start), "is_open": is_open}

    def saved(self, stamp: Mapping[str, Any]) -> None:
        """Records that a checkpoint with this stamp is complete."""
        if stamp["is_open"]:
            # After the first open checkpoint, other ranks resume from newer ones.
            self._is_released = True

    @property
    def retained_folder(self) -> Path | None:
        """The folder of the checkpoint that late ranks still need; None when it can be removed."""
        return None if self._start is None or self._is_released else self._start.path

    def _set_start(self, newest: Checkpoint | None) -> None:
        if not self._has_start:
            self._has_start, self._start = True, newest
            before = self._of_this_job(newest)
            self._launch_before = None if before is None else before["id"]

    def _have_all_requested(self) -> bool:
        while self._next_rank < self._world_size:
            note = self._note_of(self._next_rank)
            if note.get("job") != self._job:
                return False
            # The rank requested before the first checkpoint of this launch, and so got the same start; or it
            # requested later, and its note names this launch.
            is_same_start = (note.get("launch"), note.get("step")) == (self._launch_before, _step_of(self._start))
            if note.get("launch") != self._id and not is_same_start:
                return False
            self._next_rank += 1
        return True

    # ---- the other ranks

    def resume_point(self) -> Checkpoint | None:
        """Returns the checkpoint of rank 0 that is visible to this rank; CheckpointError if it was removed."""
        newest, launch = self._request_newest()
        if launch is None:
            return newest
        if launch["step"] is None:
            return None
        checkpoint = read_checkpoint(self._folder / str(launch["step"]))
        if checkpoint is None:
            raise CheckpointError(
                f"rank {self._rank} cannot start where rank 0 of this launch has started: the checkpoint of step "
                f"{launch['step']} in {self._folder} was removed; start all processes again"
            )
        return checkpoint

    def record_request(self) -> None:
        """Writes the note by which rank 0 learns that this rank has its start."""
        with contextlib.suppress(OSError):  # without the note, rank 0 keeps the checkpoint that it started from
            self._request_newest()

    def _request_newest(self) -> tuple[Checkpoint | None, Mapping[str, Any] | None]:
        """Returns the newest checkpoint of rank 0, and its launch if this rank must not see it."""
        newest = latest_checkpoint(self._folder)
        launch = self._of_this_job(newest)
        with self._lock:
            has_ended = launch is not None and self._has_ended(launch)
            launch_id = None if launch is None else launch["id"]
            is_hidden = launch is not None and not launch["is_open"] and not has_ended
            if self._first is None:
                self._first = (launch_id, has_ended)
                hidden_step = launch["step"] if launch is not None else None
                self._write_note(launch_id, hidden_step if is_hidden else _step_of(newest))
        if is_hidden and newest is not None:
            logger.info(
                "step %s was saved in this launch; it is hidden until all ranks have asked for a checkpoint",
                newest.step,
            )
        return newest, launch if is_hidden else None

    def _has_ended(self, launch: Mapping[str, Any]) -> bool:
        """Returns True if a launch of this job has finished, because its processes were replaced."""
        if self._first is not None:
            # A launch whose first checkpoint was saved after the first request is the current one.
            return self._first == (launch["id"], True)
        note = self._note_of(self._rank)
        if note.get("job") != self._job or note.get("process") == self._id:
            return False
        return bool(note.get("launch") == launch["id"] or note.get("step") == launch["step"])

    def _write_note(self, launch_id: str | None, step: int | None) -> None:
        path = self._note_path(self._rank)
        note = {"job": self._job, "process": self._id, "launch": launch_id, "step": step}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(note), mode=0o666, draft=path.with_name(_hidden("draft")))
        except OSError as error:  # rank 0 then keeps its start for this rank: more disk, but still correct
            logger.info("rank %s cannot record that it has asked for its checkpoint: %s", self._rank, error)

    # ---- both

    def resume_from(self, folder: Path, newest: Checkpoint | None, *, has_saved: bool) -> Checkpoint | None:
        """Returns the checkpoint that this rank continues from, and records that it has requested one.

        `newest` is the newest one in the rank's folder. Before this process has saved one, a restarted rank does
        not get a later step than rank 0.
        """
        if self._rank == 0:
            self.record_start(newest)
            return newest
        if newest is None:
            return self.resume_point()
        newest_of_rank_0, launch = self._request_newest()
        reached = _step_of(newest_of_rank_0) if launch is None else launch["step"]  # as this rank can tell
        if has_saved or reached is None or (newest.step or 0) <= reached:
            return newest
        usable = (each for each in complete_checkpoints(folder) if (each.step or 0) <= reached)
        return next(usable, None) or self.resume_point()

    def _of_this_job(self, checkpoint: Checkpoint | None) -> Mapping[str, Any] | None:
        """Returns the launch of a checkpoint if it belongs to this job."""
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
            content = json.loads(self._note_path(rank).read_text(encoding="utf-8"))
            if isinstance(content, dict):
                return content
        return {}


def _hidden(name: str) -> str:
    """Returns a name that no store lists, so that the file is in no output (`storage.leftovers`)."""
    return f".pai-sdk-{zlib.crc32(os.fsencode(f'launch-{name}')):016x}.part"


def _step_of(checkpoint: Checkpoint | None) -> int | None:
    return None if checkpoint is None else checkpoint.step


def _job_of(job_id: str, world_size: int, variables: Mapping[str, str]) -> str:
    """Returns the job's id, with the number of the restart where all processes have the same."""
    # torchrun counts restarts for each node, so all processes have the same count only where there is one node.
    restarts = variables.get("TORCHELASTIC_RESTART_COUNT")
    is_single_node = variables.get("LOCAL_WORLD_SIZE") == str(world_size)
    return f"{job_id}/{restarts}" if restarts and is_single_node else job_id
