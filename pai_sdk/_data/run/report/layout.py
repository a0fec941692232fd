"""The paths of a run. No other module builds a path below a run's folder.

    <runs>/<run id>/            a run; its id is the job's id
        logs/
        checkpoints/<step>/     one checkpoint; it is complete when it has its file `_COMPLETE`
        checkpoints/<step>.pai-sdk-new/  a checkpoint that is about to replace the complete one
        checkpoints/rank-<n>/   checkpoints of process n, with the same names
        tensorboard/            event files of process 0
        tensorboard/rank-<n>/   event files of process n
        tensorboard/log-metrics/  metrics that the job's definitions parse from its logs, a file for each instance
        model/
        trace/
        saved/<number>/         states saved by the driver of a function: its state, and a copy of the checkpoint
        <channel>/              any other output channel of the job

Only names are computed here: nothing is read or written. Standard library only, for Python 3.8 and newer, because
jobs import this module in images without pai_sdk.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import NamedTuple

from pai_sdk._data.run.events.writer import LOG_METRICS
from pai_sdk.errors import InvalidInputError, Problem

_RUN_ID = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_CHECKPOINT_PATH = re.compile(
    r"(?:rank-([1-9][0-9]*)/)?(0|[1-9][0-9]*)(\.pai-sdk-new)?/(.*)", re.ASCII | re.DOTALL
)
REPLACEMENT = ".pai-sdk-new"
"""Suffix of the folder of a checkpoint that is about to replace a complete one."""

_MAX_NAME_BYTES = 255  # the limit of most file systems

_RUN_ID_HINT = "a letter or digit, then letters, digits, '_', '.' and '-', such as train-2026.11"


class CheckpointPath(NamedTuple):
    """A file of a checkpoint, by the path below the folder of checkpoints."""

    rank: int  # of the process that saved it
    step: int
    name: str = ""  # relative to the checkpoint's folder
    is_replacement: bool = False  # it is about to replace a complete checkpoint of this step

    @property
    def folder(self) -> str:
        """The checkpoint's folder, with a `/` at its end."""
        step = f"{self.step}{REPLACEMENT}/" if self.is_replacement else f"{self.step}/"
        return f"rank-{self.rank}/{step}" if self.rank else step


@dataclass(frozen=True)
class RunLayout:
    """The paths of one run."""

    # A URI, a local path, or a path relative to a store. Within a job it is the folder of the output channels,
    # `/ml/output`.
    folder: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", _without_slash(self.folder))

    @classmethod
    def of(cls, runs: str, run_id: str) -> RunLayout:
        """Returns the layout of a run in a folder of runs; raises InvalidInputError for an id that is a path."""
        check_run_id(run_id)
        return cls(join(runs, run_id))

    @property
    def run_id(self) -> str:
        """The last part of the folder's name."""
        return self.folder.rpartition("/")[2]

    @property
    def logs(self) -> str:
        """The folder of logs."""
        return join(self.folder, "logs")

    @property
    def checkpoints(self) -> str:
        """The folder of all checkpoints."""
        return join(self.folder, "checkpoints")

    @property
    def tensorboard(self) -> str:
        """The folder of TensorBoard's event files."""
        return join(self.folder, "tensorboard")

    @property
    def log_metrics(self) -> str:
        """The folder of the event files with metrics that metric definitions parse from logs."""
        return join(self.tensorboard, LOG_METRICS)

    @property
    def model(self) -> str:
        """The folder of the trained model."""
        return join(self.folder, "model")

    @property
    def trace(self) -> str:
        """The folder of traces."""
        return join(self.folder, "trace")

    @property
    def saved(self) -> str:
        """The folder of the states that `FunctionRun.save` writes."""
        return join(self.folder, "saved")

    def channel(self, name: str) -> str:
        """Returns the folder of an output channel; raises InvalidInputError for a name with a path in it."""
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name:
            raise InvalidInputError([Problem("channel", f"{name!r} is not a folder's name", "such as 'model'")])
        return join(self.folder, name)

    def checkpoint(self, step: int) -> str:
        """Returns the folder of one checkpoint; raises InvalidInputError unless the step is an integer from 0."""
        try:
            number = -1 if isinstance(step, bool) else operator.index(step)  # those of NumPy too
        except TypeError:
            number = -1
        if number < 0:
            raise InvalidInputError([Problem("step", f"expected an integer (minimum 0), got {step!r}")])
        return join(self.checkpoints, str(number))

    def checkpoint_marker(self, step: int) -> str:
        """Returns the marker file of a checkpoint, which lists the checkpoint's files and is written last."""
        return join(self.checkpoint(step), "_COMPLETE")

    @staticmethod
    def of_rank(folder: str, rank: int) -> str:
        """Returns the folder of one process below a folder of the run; rank 0 has the folder itself."""
        return join(folder, f"rank-{rank}") if rank else folder

    @staticmethod
    def step_of(name: str) -> int | None:
        """Returns the step of a folder in `checkpoints`; None for other folders, such as `300.tmp` or `007`."""
        return int(name) if re.fullmatch("0|[1-9][0-9]*", name, re.ASCII) else None

    @staticmethod
    def checkpoint_path(path: str) -> CheckpointPath | None:
        """Parses a path below the folder of checkpoints; None when it is in no checkpoint."""
        match = _CHECKPOINT_PATH.fullmatch(path)
        if match is None:
            return None
        rank, step, replacement, name = match.groups()
        return CheckpointPath(int(rank or 0), int(step), name, bool(replacement))


def is_run_id(value: object) -> bool:
    """Returns True if a value can be the id of a run."""
    return isinstance(value, str) and len(value) <= _MAX_NAME_BYTES and _RUN_ID.fullmatch(value) is not None


def check_run_id(run_id: object) -> None:
    """Raises InvalidInputError for a value that cannot be the id of a run."""
    if not is_run_id(run_id):
        raise InvalidInputError([Problem("run_id", f"{run_id!r} is not the id of a run", _RUN_ID_HINT)])


def join(folder: str, name: str) -> str:
    """Returns the path of a name in a folder, with "/" on every system; the folder may be a URI."""
    base = _without_slash(folder)
    return base + name if base == "" or base.endswith("/") else f"{base}/{name}"


def _without_slash(folder: str) -> str:
    # The slashes of "/", "memory://" and "dbfs:/" belong to the name.
    stripped = folder.rstrip("/")
    return folder if stripped == "" or stripped.endswith(":") else stripped
