"""The names of the function API of Ray Tune, so that code written for it runs with another import line.

    from pai_sdk._data.run.functions import runner as tune     # was: from ray import tune
    from pai_sdk._data.run import function_runner             # was: from ray.tune import function_runner

`tune.report(loss=0.1)`, `tune.checkpoint_dir(step)` and `function_runner.wrap_function(train)` work as in Ray.
They are short forms of `pai_sdk._data.run.functions.function_run` and `pai_sdk._data.run.report.session`.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pai_sdk._data.run.functions.calling import StatusReporter, kind_of
from pai_sdk._data.run.functions.function_run import FunctionRun, wrap
from pai_sdk._data.run.functions.saved_state import SavedState
from pai_sdk._data.run.report import session as reporting
from pai_sdk._data.run.report.checkpoints import Checkpoint
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.run.report.session import get_checkpoint, get_context, is_session_enabled
from pai_sdk.errors import CheckpointError

__all__ = [
    "FunctionRunner",
    "StatusReporter",
    "checkpoint_dir",
    "get_checkpoint",
    "get_context",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_logdir",
    "get_trial_name",
    "is_session_enabled",
    "report",
    "wrap_function",
]

logger = logging.getLogger(__name__)

_ARGUMENTS = (  # of `pai_sdk.report`; not metrics
    "checkpoint",
    "checkpoint_upload_mode",
    "delete_local_checkpoint_after_upload",
    "checkpoint_dir_name",
    "checkpoint_upload_fn",
)


class FunctionRunner(FunctionRun):
    """A `FunctionRun` with the method names of Ray Tune."""

    def execute(self, function: Callable[[FunctionRunner], Any]) -> Any:
        """Call a function with this run, and return its value."""
        return function(self)

    def load_checkpoint(self, checkpoint: str | Path | Checkpoint) -> None:
        """Restore a saved state; see `restore`."""
        self.restore(checkpoint)

    def delete_checkpoint(self, checkpoint: str | Path) -> None:
        """Remove a folder that `save()` of this run returned; a missing folder is ignored.

        Raises:
            CheckpointError: it is another folder, or the run resumes from it and has no newer checkpoint yet.
        """
        folder = Path(checkpoint).absolute()
        if folder.parent != Path(RunLayout(str(self.folder)).saved) or not folder.name.isdecimal():
            raise CheckpointError(f"{folder} is not removed: save() of {self.run_id} has not returned it")
        if self._checkpoint is not None and folder in self._checkpoint[0].parents:
            raise CheckpointError(f"{folder} is not removed: {self.run_id} resumes from it; remove it later")
        # Renamed first, so that no reader gets a partial checkpoint.
        removed = folder.with_name(f".removed-{folder.name}-{uuid.uuid4().hex}")
        with contextlib.suppress(FileNotFoundError):
            folder.rename(removed)
            shutil.rmtree(removed)
        if self._saved == folder:
            self._saved = None

    def reset_config(self, new_config: Mapping[str, Any]) -> bool:
        """Stop the function; the next step starts it with another config: from scratch, or after `restore`.

        Returns:
            True: the run can be used again.

        Raises:
            FunctionError: as for `stop`. The config is unchanged then.
        """
        self._end_function()
        self._config = new_config
        self._use(SavedState(None))
        return True

    def cleanup(self) -> None:
        """Stop the function; see `stop`."""
        self.stop()


def wrap_function(train_func: Callable[..., Any], warn: bool = True) -> type[FunctionRunner]:
    """Returns the class of the runs of a function, see `wrap`.

    Args:
        train_func: the function.
        warn: log a warning if the function takes neither `checkpoint_dir` nor `reporter`.

    Raises:
        InvalidInputError: a ValueError; as for `wrap`.
    """
    kind = wrap(train_func)
    wrapped = type(kind.__name__, (kind, FunctionRunner), {"__doc__": kind.__doc__})
    if warn and kind_of(train_func) == "config":
        logger.warning(
            "%s takes no checkpoint_dir; it can be restored only if it calls get_checkpoint()", wrapped.__name__
        )
    return wrapped


def report(_metric: Any = None, **metrics: Any) -> None:
    """Report metrics: keywords, a mapping, or one number.

    `checkpoint` and the related arguments of `pai_sdk.report` work too; so does `validation`, if
    it is a function. `step` is a metric, as in Ray Tune; a whole number is also the step of the report.
    """
    if _metric is not None and not isinstance(_metric, Mapping):
        _metric = {"_metric": _metric}
    if isinstance(metrics.get("metrics"), Mapping):
        _metric = {**(_metric or {}), **metrics.pop("metrics")}
    arguments = {
        name: metrics.pop(name)
        for name in (*_ARGUMENTS, "validation")
        if name in metrics and (name != "validation" or callable(metrics[name]))
    }
    step: Any = metrics.get("step")
    is_step = hasattr(step, "__index__") and not isinstance(step, bool) and step >= 0
    reporting.report({**(_metric or {}), **metrics}, step if is_step else None, **arguments)


@contextlib.contextmanager
def checkpoint_dir(step: int) -> Iterator[str]:
    """Yields the path of a folder that becomes the checkpoint of a step when the block ends, as a string."""
    with reporting.checkpoint_dir(step) as folder:
        yield str(folder)


def get_trial_id() -> str:
    """Returns the id of the run; empty outside of a run."""
    return get_context().job_id


get_trial_name = get_trial_id


def get_trial_dir() -> str | None:
    """Returns the folder of the run; None outside of a run."""
    folder = get_context().folder
    return None if folder is None else str(folder)


get_trial_logdir = get_trial_dir
