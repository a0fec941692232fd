"""Reports from inside a training: metrics and checkpoints, wherever it runs.

`report({"loss": 0.1}, step=3)` is the same call in a job of any backend and in a function in a notebook. A
`ReportSession` receives it: in a job the session of the job, which reads its folders from the variables of the job
contract; in a function the session that is bound to the thread. This module is shipped with jobs: standard library
only, syntax of Python 3.8.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pai_sdk._data.run.events.writer import check_scalars
from pai_sdk._data.run.report.checkpoint_saver import SaveOptions
from pai_sdk._data.run.report.checkpoints import Checkpoint, CheckpointConfig
from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.metrics import flat_metrics
from pai_sdk._data.run.report.report_session import (
    ReportSession,
    bound_session,
    check_checkpoint,
    truncated_traceback,
)
from pai_sdk.errors import CheckpointError

logger = logging.getLogger(__name__)

_EXIT_CODE = 1  # of a job's process whose last checkpoint could not be saved
_NO_SESSION = (
    "this code runs outside a job, so report() and the functions beside it have no effect; within "
    "`with ReportSession(folder).bound():` metrics and checkpoints are kept in a folder"
)

_DEFAULT_OPTIONS = SaveOptions()

_job_lock = threading.Lock()
_job_session: _JobSession | None = None
_has_warned = False


class _JobSession(ReportSession):
    """The session of a job, whose status is known to its backend only."""

    def _end(self, status: str) -> None:
        pass


def _session() -> ReportSession | None:
    """Returns the session that is bound to this context, or the session of the job, or None."""
    # Without the lock: the job's session is set once, and never replaced.
    return bound_session.get() or _job_session or _start_job_session()


def _start_job_session() -> ReportSession | None:
    global _job_session, _has_warned
    # Two threads may make the first report at the same time; only one of them creates the session.
    with _job_lock:
        if _job_session is None:
            context = Context.of_environment(os.environ)
            if context is None or context.folder is None:
                if not _has_warned:
                    _has_warned = True
                    logger.warning(_NO_SESSION)
                return None
            _job_session = _JobSession(context.folder, context=context)
            atexit.register(_close_job_session)
        return _job_session


def _close_job_session() -> None:
    """Saves the remaining checkpoints at exit; the job fails if one cannot be saved."""
    if _job_session is None:
        return
    try:
        _job_session.close()
    except CheckpointError:
        # An exception of an atexit handler does not change the exit code, so the process ends by `os._exit`, which
        # flushes nothing by itself.
        logger.exception("the job fails, because its last checkpoints are missing")
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(_EXIT_CODE)


def _renew_lock() -> None:
    """Replaces the lock of a forked process, which a thread of the parent may hold for ever."""
    global _job_lock
    _job_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def report(
    metrics: Mapping[str, Any] | None = None,
    step: int | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    *,
    checkpoint_upload_mode: str = "ASYNC",
    delete_local_checkpoint_after_upload: bool | None = False,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_fn: Callable[[Checkpoint, str], Any] | None = None,
    validation: Callable[[Checkpoint], Mapping[str, Any] | None] | None = None,
    **more: Any,
) -> None:
    """Record metrics, and a checkpoint.

    It does not wait, unless a scheduler has requested lock-step, or four checkpoints are not saved yet.

    Outside a job and a session, the first call logs a warning, and no call has an effect; arguments are checked
    as in a job.

    Args:
        metrics: name to number, also of NumPy or another library, or an array with one element. A
            nested mapping becomes names with `/`. NaN and infinities are recorded for TensorBoard only.
        step: of the training; by default one more than the last one, and 1 at first.
        checkpoint: a folder. In the background it is copied to the run's `checkpoints/<step>`, and complete there
            when its marker is written. It must not change before that. It stores the metrics of this report, or
            else those of other reports of the same step.
        checkpoint_upload_mode: `ASYNC`, or `SYNC` to wait for the copy, or `NO_UPLOAD` for a folder that is
            `checkpoints/<step>` already, which only gets its marker. For a folder of `tempfile`, `ASYNC` means
            `SYNC`, since it is removed soon.
        delete_local_checkpoint_after_upload: remove the folder when it is copied.
        checkpoint_dir_name: letters and the step, such as `checkpoint_000012`; the folder is named by the step.
        checkpoint_upload_fn: called in the background instead of the copy, with the checkpoint and the path of the
            empty folder that it fills.
        validation: called in the background with the complete checkpoint. The metrics that it returns are recorded
            at the same step and stored with the checkpoint, which is not removed before.
        more: metrics as keywords.

    Raises:
        TypeError: a metric is no number.
        OverflowError: a number is too large for a float64, or the step for an int64.
        CheckpointError: this checkpoint is no folder with files, or an earlier one could not be saved.
        StopTraining: the training was asked to stop.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder, ReportSession(folder) as session, session.bound():
        ...     report({"loss": 0.5, "eval": {"accuracy": 0.9}}, step=1)
    """
    with truncated_traceback:
        session = _session()
        if more:
            metrics = {**(metrics or {}), **more}
        if checkpoint is None:
            if validation:
                raise CheckpointError("validation needs a checkpoint: give it in the same report")
            options = _DEFAULT_OPTIONS
        else:
            if checkpoint_dir_name is not None:
                step = _step_from_name(checkpoint_dir_name, step)
            options = SaveOptions(
                getattr(checkpoint_upload_mode, "name", checkpoint_upload_mode),
                bool(delete_local_checkpoint_after_upload),
                checkpoint_upload_fn,
                validation or None,
            )
        if session is None:  # raises outside a job too, so that the error shows before the job is submitted
            check_scalars(flat_metrics(metrics or {}), 1 if step is None else step)
            check_checkpoint(checkpoint, options)
        else:
            session.report(metrics or {}, step, checkpoint, options=options)


def _step_from_name(name: str, step: int | None) -> int:
    match = re.fullmatch("[A-Za-z_-]*([0-9]+)", name, re.ASCII)
    if match is None or step not in (None, int(match[1])):
        raise CheckpointError(
            f"checkpoint_dir_name={name!r} does not name the step: folders of checkpoints are named by their "
            "steps; leave it out and give step=…, or name it like 'checkpoint_000012'"
        )
    return int(match[1])


def get_checkpoint() -> Checkpoint | None:
    """Returns the checkpoint to continue from: the complete one of the latest step; None at the start.

    Waits until the checkpoints reported by this process are saved. In a job of several processes, checkpoints that
    rank 0 has saved since the job started are visible to other ranks when all ranks have requested one.

    Example:
        >>> get_checkpoint() is None
        True
    """
    session = _session()
    return None if session is None else session.checkpoint()


def get_all_reported_checkpoints(consistency_mode: str | None = None) -> list[Checkpoint]:
    """Returns all complete checkpoints of the run, the earliest step first.

    Args:
        consistency_mode: `COMMITTED` waits until all reported checkpoints are complete, `VALIDATED` also until
            their validations have finished; by default, there is no wait.

    Raises:
        CheckpointError: the mode is not one of these.
    """
    session = _session()
    return [] if session is None else session.checkpoints(consistency_mode)


@contextlib.contextmanager
def checkpoint_dir(step: int | None = None, metrics: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """An empty folder that becomes the checkpoint of a step when the block ends, without a copy.

    After an error within the block it is removed. If the step has a complete checkpoint already, the folder lies
    beside it and replaces it at the end of the block. Outside a job and a session, it is a temporary folder.

    Args:
        step: of the training; by default the one that the next report has.
        metrics: stored with the checkpoint. They are not reported.

    Example:
        >>> with checkpoint_dir(step=3) as folder:
        ...     _ = (folder / "weights").write_text("1.0")
    """
    session = _session()
    if session is None:
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            yield Path(folder)
        return
    with session.checkpoint_dir(step, metrics) as path:
        yield path


def set_checkpoint_config(config: CheckpointConfig) -> None:
    """Keep the best checkpoints and the latest one; all others are removed, from the job's output URI too.

    It is applied to all checkpoints of the run, whenever one is complete. Outside a job and a session, it has no
    effect.

    Args:
        config: which are kept.

    Example:
        >>> set_checkpoint_config(CheckpointConfig(num_to_keep=3, score_attribute="loss", score_order="min"))
    """
    session = _session()
    if session is not None:
        session.checkpoint_config = config


def get_context() -> Context:
    """Returns the context of this code: job, instance, rank, folder, hyperparameters.

    Example:
        >>> get_context().world_size
        1
    """
    session = _session()
    return Context() if session is None else session.context


def is_session_enabled() -> bool:
    """Returns True if `report` has an effect: in a job, in a run of a function, in the block of a session.

    Example:
        >>> is_session_enabled()
        False
    """
    return current_context() is not None


def current_context() -> Context | None:
    """Returns the context without starting the job's session; None outside a job, a run and a session."""
    session = bound_session.get() or _job_session
    return Context.of_environment(os.environ) if session is None else session.context
