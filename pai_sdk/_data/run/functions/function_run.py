"""A function as a training that a driver steps, saves, restores and stops."""

from __future__ import annotations

import re
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pai_sdk._core.names.hints import wrong_value
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.run.functions.calling import exit_code_of, exit_text_of, kind_of
from pai_sdk._data.run.functions.host import Ended, Host, Message, Task, ThreadHost
from pai_sdk._data.run.functions.saved_state import SavedState, pack, read_saved, unpack, write_saved
from pai_sdk._data.run.report.checkpoints import Checkpoint
from pai_sdk._data.run.report.layout import RunLayout, check_run_id
from pai_sdk._data.run.report.report_session import Report
from pai_sdk.errors import FunctionError, FunctionFinished, InvalidInputError, Problem

_GRACE_S = 10.0
_SAVE_S = 300.0
_AHEAD = 10_000
_MODES = ("thread", "process")
_COUNTERS = ("iteration", "time_total", "timesteps_total", "episodes_total")


@short_tracebacks
class FunctionRun:
    """One function with one config, run as a training. It starts with the first requested result.

    Runs share nothing, so any number of them may be in one process; a run itself is used by one thread at a time.

    Args:
        function: `f(config)`, `f(config, checkpoint_dir=None)` or `f(config, reporter)`. It may be a generator:
            yielded metrics are reported. A returned number or dict of numbers is reported too.
        config: the argument of the function; a dict is copied.
        folder: the run's folder, with `checkpoints` and `tensorboard`; `~/.pai/runs/<run id>` by default. In the
            folder of an earlier run, the function can use the checkpoints of that run.
        mode: `thread`, or `process`, which can be killed and has its own memory (Linux and macOS).
        lock_step: each report waits until the next result is requested.
        ahead: without `lock_step`, the maximum number of results that wait for the caller before reports block.
        run_id: the run's id; the function's name and a few digits by default.

    Attributes:
        run_id: the run's id.
        folder: the run's folder.
        last_result: the last returned result; empty before the first one.

    Example:
        >>> def train(config):
        ...     for step in range(3):
        ...         yield {"loss": config["lr"] / (step + 1)}
        >>> with tempfile.TemporaryDirectory() as folder, FunctionRun(train, {"lr": 0.6}, folder=folder) as run:
        ...     [round(result["loss"], 1) for result in run]
        [0.6, 0.3, 0.2]
    """

    def __init__(
        self,
        function: Callable[..., Any],
        config: Mapping[str, Any] | None = None,
        *,
        folder: str | Path | None = None,
        mode: str = "thread",
        lock_step: bool = False,
        ahead: int = _AHEAD,
        run_id: str | None = None,
    ) -> None:
        _check(function, mode, ahead)
        self._function = function
        self._config = {} if config is None else config
        self._mode = mode
        self._ahead = 0 if lock_step else ahead
        name = re.sub(r"[^A-Za-z0-9]+", "-", _name_of(function)).strip("-") or "function"
        self.run_id = run_id or f"{name}-{uuid.uuid4().hex[:8]}"
        check_run_id(self.run_id)
        # Absolute, so that the paths that `save` returns stay valid in another working directory.
        self.folder = Path(folder or Path.home() / ".pai" / "runs" / self.run_id).absolute()
        self.last_result: dict[str, Any] = {}
        self._experiment_id = uuid.uuid4().hex
        self._host: Host | None = None
        self._end_reason: str = ""
        self._is_requested = False
        self._restored: SavedState | None = None
        self._temporary: Path | None = None
        self._last_metrics: dict[str, Any] | None = None
        self._reported_at = 0.0
        self._counters = RunCounters()
        # The latest checkpoint with its counters, and the folder where it was saved; None until it is saved.
        self._checkpoint: tuple[Path, dict[str, Any]] | None = None
        self._saved: Path | None = None

    # ---- results

    def step(self) -> dict[str, Any]:
        """Returns the metrics of the next report; at the end, those of the last one again, with `done`.

        Returns:
            The metrics with `time_this_iter_s`, `done`, and `should_checkpoint` if there is a new checkpoint.

        Raises:
            FunctionFinished: the function has finished, or was stopped.
            FunctionError: it returned without a report, or by `sys.exit`, or its process died; `exit_code`.
            Exception: the error of the function, after all results before it were returned.
        """
        message = self._next(None)
        if isinstance(message, Ended):
            if self._last_metrics is None:
                raise FunctionError(
                    f"{self.run_id} finished without a report: call report(metrics), yield or return metrics"
                )
            new = {} if message.checkpoint is None else {"should_checkpoint": True}
            return {**self._last_metrics, **new, "done": True, "__duplicate__": True}
        assert isinstance(message, Report)  # noqa: S101 # without a timeout there is a message
        return self._result_of(message)

    def train(self) -> dict[str, Any]:
        """Returns the next result: that of `step` with the counters of the run; errors as for `step`."""
        self.last_result = self._with_counters(self.step())
        return self.last_result

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the results of all reports; errors as for `step`."""
        while not (result := self.train()).get("__duplicate__"):
            yield result

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait until the function returns; its remaining results are only recorded.

        Args:
            timeout_s: the maximum wait, in seconds; unlimited by default.

        Returns:
            The value of the function.

        Raises:
            TimeoutError: the function has not returned in time; it continues.
            Exception: as for `step`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            message = self._next(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if message is None:
                raise TimeoutError(f"{self.run_id} did not finish within {timeout_s:g} s")
            if isinstance(message, Ended):
                return message.value
            self.last_result = self._with_counters(self._result_of(message))

    @property
    def training_iteration(self) -> int:
        """The number of returned results, with those before a restored state."""
        return int(self._counters.values()["iteration"])

    def _next(self, timeout_s: float | None) -> Message | None:
        self.start()
        host = self._host
        assert host is not None  # noqa: S101 # for the type checker
        # After a timeout the request is still open: a second one would let the function run two results ahead.
        if not self._is_requested:
            host.request()
        message = host.take(timeout_s)
        self._is_requested = message is None
        if isinstance(message, Ended):
            self._host = None
            self._end_reason = "has ended"
            if message.checkpoint is not None:
                self._checkpoint, self._saved = (message.checkpoint, self._counters.values()), None
            if message.error is not None:
                self._end_reason = f"has failed with {type(message.error).__name__}"
                raise _exception_of(message.error, self.run_id)
        return message

    def start(self) -> None:
        """Start the function before its first result is requested; a no-op if it runs.

        Raises:
            FunctionFinished: the function has finished, or was stopped.
        """
        if self._host is not None:
            return
        if self._end_reason:
            raise FunctionFinished(f"{self.run_id} {self._end_reason}; restore() it, or create another run")
        restored = self._restored
        task = Task(
            self._function,
            dict(self._config) if isinstance(self._config, dict) else self._config,
            self.folder,
            self.run_id,
            self._ahead,
            None if restored is None else str(restored.checkpoint or ""),
        )
        self._reported_at = time.monotonic()
        if self._mode == "process":
            from pai_sdk._data.run.functions.process import ProcessHost

            self._host = ProcessHost(task)
        else:
            self._host = ThreadHost(task)
        self._pid = self._host.pid

    def _result_of(self, report: Report) -> dict[str, Any]:
        now = time.monotonic()
        result = {"time_this_iter_s": now - self._reported_at, "done": False, **report.metrics}
        self._reported_at = now
        self._last_metrics = dict(result)
        self._counters.count(result)
        if report.checkpoint is not None:
            self._checkpoint, self._saved = (report.checkpoint, self._counters.values()), None
            result["should_checkpoint"] = True
        return result

    def _with_counters(self, result: dict[str, Any]) -> dict[str, Any]:
        now = time.time()
        loss = result.get("mean_loss")
        return {
            "trial_id": self.run_id,
            "experiment_id": self._experiment_id,
            **self._counters.results(),
            **({} if loss is None else {"neg_mean_loss": -loss}),
            "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)),
            "timestamp": int(now),
            "pid": self._pid,
            "hostname": socket.gethostname(),
            "node_ip": _node_ip(),
            "config": self._config,
            **result,
        }

    # ---- checkpoints

    def save(self, checkpoint_dir: None = None) -> str:
        """Copy the latest checkpoint into a folder of its own, with the counters of its result.

        A checkpoint is copied once: without a new one, the previous folder is returned. Without any checkpoint,
        the folder has none, and a run that is restored from it starts from scratch.

        Returns:
            The folder; it is not changed or removed by any run.

        Raises:
            ValueError: `checkpoint_dir` is not None; the run chooses the folder.
            CheckpointError: the checkpoint is gone, or changes meanwhile.
        """
        if checkpoint_dir is not None:
            problem = "is not supported: the run chooses the folder"
            raise InvalidInputError([Problem("checkpoint_dir", problem, "use the path that save() returns")])
        if self._saved is None:
            source, counters = self._checkpoint or (None, RunCounters().values())
            values = {"experiment_id": self._experiment_id, "run_id": self.run_id, "counters": counters}
            saved = write_saved(Path(RunLayout(str(self.folder)).saved), source, values)
            if source is None:
                return str(saved)  # the next one may have a checkpoint
            self._saved = saved
        return str(self._saved)

    def restore(self, path: str | Path | Checkpoint) -> None:
        """Continue from a saved state. The function is stopped if it runs, and started again by the next step.

        Args:
            path: from `save()`, of this run or another; or the folder of a checkpoint, which has no counters.

        Raises:
            CheckpointError: it is neither, or not complete.
        """
        saved = read_saved(path)
        self._end_function()
        self._use(saved)

    def save_to_object(self) -> bytes:
        """Returns the state that `save()` saves, as bytes; errors as for `save`."""
        return pack(Path(self.save()))

    def restore_from_object(self, content: bytes) -> None:
        """Continue from an object of `save_to_object` of any run.

        The files are in a temporary folder until `stop()`.

        Raises:
            CheckpointError: the object is damaged, or not one of `save_to_object`.
        """
        folder = Path(tempfile.mkdtemp(prefix="pai-function-"))
        try:
            unpack(content, folder)
            self._end_function()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._use(read_saved(folder))
        self._temporary = folder

    def _use(self, saved: SavedState) -> None:
        self._restored = saved
        self._counters = RunCounters(saved.values.get("counters"))
        self._experiment_id = str(saved.values.get("experiment_id") or self._experiment_id)
        self._checkpoint = None if saved.checkpoint is None else (saved.checkpoint, self._counters.values())
        self._saved = None
        self._last_metrics = None
        self._end_reason = ""

    # ---- stopping

    def stop(self, grace_s: float = _GRACE_S, *, save_s: float = _SAVE_S) -> None:
        """End the function: its next report raises `StopTraining`; a process is killed after the grace period.

        It waits for checkpoints that are being saved or validated then.

        Args:
            grace_s: the maximum wait for the next report.
            save_s: the maximum wait for checkpoints after that.

        Raises:
            FunctionError: the function runs in a thread, and has not called `report` within the grace period; or a
                checkpoint was not saved within `save_s`. Then the thread continues, and a process is killed.
        """
        try:
            self._end_function(grace_s, save_s)
        finally:
            if self._host is None:
                self._end_reason = self._end_reason or "was stopped"

    def __enter__(self) -> FunctionRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _end_function(self, grace_s: float = _GRACE_S, save_s: float = _SAVE_S) -> None:
        """Stops the function, and removes the temporary checkpoint."""
        host = self._host
        try:
            if host is not None:
                host.stop(grace_s, save_s)
        finally:
            # A thread that is still running may read the temporary checkpoint, so it stays then.
            if host is None or host.has_ended:
                self._host = None
                self._clean_up()

    def _clean_up(self) -> None:
        self._is_requested = False
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            if self._checkpoint is not None and self._temporary in self._checkpoint[0].parents:
                self._checkpoint = self._checkpoint if self._saved is not None else None
            self._temporary = None

    def __repr__(self) -> str:
        return f"<FunctionRun {self.run_id} iteration={self.training_iteration}>"


class RunCounters:
    """Counts results, seconds, time steps and episodes of a run, with those before a restored state."""

    def __init__(self, saved: object = None) -> None:
        saved = saved if isinstance(saved, dict) else {}
        valid = {name: value for name in _COUNTERS if isinstance(value := saved.get(name), int | float)}
        self._counts: dict[str, Any] = {**dict.fromkeys(_COUNTERS, 0), **valid}
        self._at_restore = dict(self._counts)

    def count(self, result: Mapping[str, Any]) -> None:
        """Counts one result."""
        self._counts["iteration"] += 1
        self._counts["time_total"] += result["time_this_iter_s"]
        for kind in ("timesteps", "episodes"):
            self._counts[f"{kind}_total"] += result.get(f"{kind}_this_iter", 0)

    def values(self) -> dict[str, Any]:
        """Returns a copy, to be saved."""
        return dict(self._counts)

    def results(self) -> dict[str, Any]:
        """Returns the counters as entries of a result, in total and since the restored state."""
        counts, before = self._counts, self._at_restore
        return {
            "training_iteration": counts["iteration"],
            "time_total_s": counts["time_total"],
            "timesteps_total": counts["timesteps_total"],
            "episodes_total": counts["episodes_total"],
            "iterations_since_restore": counts["iteration"] - before["iteration"],
            "time_since_restore": counts["time_total"] - before["time_total"],
            "timesteps_since_restore": counts["timesteps_total"] - before["timesteps_total"],
            "episodes_since_restore": counts["episodes_total"] - before["episodes_total"],
        }


def wrap(function: Callable[..., Any]) -> type[FunctionRun]:
    """Returns a class of runs of one function, with its name: `wrap(train)(config, folder=…)`.

    Raises:
        InvalidInputError: it is not `f(config)`, `f(config, checkpoint_dir=None)` or `f(config, reporter)`.

    Example:
        >>> def train(config): ...
        >>> wrap(train).__name__
        'train'
    """
    _check(function, _MODES[0], 0)

    class Wrapped(FunctionRun):
        def __init__(self, config: Mapping[str, Any] | None = None, **options: Any) -> None:
            super().__init__(function, config, **options)

    Wrapped.__name__ = Wrapped.__qualname__ = _name_of(function)
    Wrapped.__doc__ = function.__doc__
    return Wrapped


def _exception_of(error: BaseException, run_id: str) -> Exception:
    """Returns an Exception itself, and others, which would end the driver (SystemExit), as a FunctionError."""
    if isinstance(error, Exception):
        return error
    code = exit_code_of(error) if isinstance(error, SystemExit) else None
    description = f"ended by {type(error).__name__}" + ("" if code is None else f" with exit code {code}")
    if isinstance(error, SystemExit) and (text := exit_text_of(error)):
        description += f": {text}"
    wrapped = FunctionError(f"{run_id} {description}", exit_code=code)
    wrapped.__cause__ = error
    return wrapped


def _name_of(function: Callable[..., Any]) -> str:
    while hasattr(function, "func"):  # a partial
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _check(function: Callable[..., Any], mode: str, ahead: int) -> None:
    problems = []
    try:
        kind_of(function)
    except ValueError as error:
        problems.append(Problem("function", str(error)))
    if mode not in _MODES:
        problems.append(wrong_value("mode", mode, "'thread' or 'process'"))
    elif mode == "process" and sys.platform == "win32":
        problems.append(Problem("mode", "'process' needs Linux or macOS", "use mode='thread'"))
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
        problems.append(wrong_value("ahead", ahead, "an integer (minimum 0)"))
    if problems:
        raise InvalidInputError(problems)


@cache
def _node_ip() -> str:
    """Returns the address of this machine in its network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a UDP socket sends nothing. The address is of TEST-NET-1 (RFC 5737), which no host has.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
