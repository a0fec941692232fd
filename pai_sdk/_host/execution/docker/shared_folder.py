"""The folder that the containers of a job share with their executor: what `instance.sh` reads and writes there."""

from __future__ import annotations

import importlib.resources
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._core.files import publish_once, replace_file
from pai_sdk._data.logs.times import END_OF_TIME_S, LogTimes
from pai_sdk._host.agent.distributed import Instance
from pai_sdk._host.agent.protocol import ExecutionRecord, ExecutionState, InstanceState
from pai_sdk._host.agent.requirement_lists import pip_problem

_MAX_TEXT_BYTES = 64 * 1024
_MAX_PROBLEM_CHARACTERS = 300
_EXIT_CODE = re.compile(r"[0-9]{1,3}")
_FAILURE = re.compile(r"(\S+)\s+([0-9]{1,3})(\s+silent)?")


@dataclass(frozen=True)
class InstanceExit:
    """The exit of an instance, as the instance itself wrote it; `at` is in seconds since 1970, UTC."""

    code: int
    at: float


class SharedFolder(ExecutionRecord):
    """The files by which a job's containers and their executor communicate.

    The containers can write here, so nothing that is read is trusted: neither its content, nor its size, nor that
    it is a file. Invalid content counts as not written. The first writer of a file wins (`publish_once`).
    """

    _max_bytes = _MAX_TEXT_BYTES
    # A container of any user must be able to read it.
    _stop_mode = 0o666

    def __init__(self, path: Path, instances: Sequence[Instance] = ()) -> None:
        super().__init__(path)
        # In rank order; needed for `state`.
        self.instances = instances

    # ---- what the executor writes ----

    def prepare(self, instance_files: Mapping[str, str], requirements: Iterable[str]) -> None:
        """Writes the script, settings and variables (these may be secrets), and the requirements for pip."""
        for folder in (self.path, *(self.path / name for name in ("home", "pip-cache", "requirements"))):
            folder.mkdir(parents=True, exist_ok=True)
        script = (
            importlib.resources.files("pai_sdk._host.execution.docker").joinpath("instance.sh").read_text("utf-8")
        )
        # An index URL may contain a password.
        lines = "".join(f"{line}\n" for line in requirements)
        contents = {"instance.sh": script, **instance_files, **({"requirements.txt": lines} if lines else {})}
        for name, text in contents.items():
            # Replaced by a rename, because a shell reads its script while it runs. The script's patterns skip
            # the draft's name, but that of `forget_secrets` matches it.
            replace_file(self.path / name, text, draft=self.path / f".{name}")

    def go(self) -> None:
        """Releases the instances; all containers exist."""
        self._write_first("go", f"{time.time():.3f}\n")

    def write_lost(self, instance: str) -> None:
        """Records that an instance gave no sign of life, before it is killed."""
        with suppress(OSError):
            self._write_first(f"{instance}.why", "peer\n")

    def write_failure(self, instance: str, exit_code: int) -> None:
        """Records the failure of an instance that could not write it, so that the others exit; the first wins."""
        with suppress(OSError):
            self._write_first("failed", f"{instance} {exit_code}\n")

    def forget_secrets(self) -> None:
        """Removes the variables, which are not needed after the end."""
        for file in self.path.glob("*.env"):
            file.unlink(missing_ok=True)

    def _write_first(self, name: str, text: str) -> None:
        publish_once(self.path / name, text, mode=0o666)

    # ---- the state ----

    def state(self) -> ExecutionState:
        """Returns the state that the instances report; the executor decides whether the job has ended."""
        failure, names = self.first_failure, [instance.name for instance in self.instances]
        return ExecutionState(
            "running" if any(map(self.has_started, names)) else "preparing",
            started_at=self.started_at,
            instances=tuple(self._instance_state(instance) for instance in self.instances),
            failed_instance=failure[0] if failure and failure[0] in names else None,
        )

    def _instance_state(self, instance: Instance) -> InstanceState:
        instance_exit = self.read_exit(instance.name)
        if instance_exit:
            return self.final_state(instance, instance_exit.code)
        status = "Running" if self.has_started(instance.name) else "Pending"
        return InstanceState(instance.name, instance.role, status)

    def final_state(self, instance: Instance, exit_code: int | None) -> InstanceState:
        """Returns the state of an instance that has ended."""
        status = "Terminated" if self.end_reason(instance.name) else "Succeed" if exit_code == 0 else "Failed"
        return InstanceState(instance.name, instance.role, status, exit_code)

    @property
    def is_launched(self) -> bool:
        """Returns whether the instances are released."""
        return self._has("go")

    @property
    def started_at(self) -> float | None:
        """Returns when they were released, in seconds since 1970."""
        try:
            at = float(self._text("go"))
        except ValueError:
            return None
        return at if 0 <= at < END_OF_TIME_S else None

    def has_started(self, instance: str) -> bool:
        """Returns whether the command of an instance was started; before that, requirements are installed."""
        return self._has(f"{instance}.started")

    def read_exit(self, instance: str) -> InstanceExit | None:
        """Returns the exit of an instance; None while it runs, or if it could not write it."""
        try:
            text, at = self._read(f"{instance}.exit")
        except OSError:
            return None
        # The job can set the mtime, also to a time outside the range of dates.
        return InstanceExit(int(text), min(max(at, 0.0), time.time())) if _EXIT_CODE.fullmatch(text) else None

    def is_exiting(self, instance: str) -> bool:
        """Returns whether an instance has ended, or is giving its files to their owner."""
        return self._has(f"{instance}.exit") or self._has(f"{instance}.exit.part")

    def end_reason(self, instance: str) -> str:
        """Returns why the executor stopped an instance: `stopped`, `timeout`, `peer`, `done`, or empty."""
        return self._text(f"{instance}.why")

    @property
    def first_failure(self) -> tuple[str, int] | None:
        """Returns the instance that failed first, and its exit code."""
        match = _FAILURE.fullmatch(self._text("failed"))
        return (match[1], int(match[2])) if match else None

    @property
    def is_failure_silent(self) -> bool:
        """Returns whether that instance only gave no sign of life, so that another one reported it as lost."""
        match = _FAILURE.fullmatch(self._text("failed"))
        return bool(match and match[3])

    @property
    def end_requested_s_ago(self) -> float | None:
        """Returns the seconds since the instances were asked to exit, for any reason; None if they were not."""
        moments = []
        for name in ("stop", "failed", "timeout"):
            with suppress(OSError):
                moments.append((self.path / name).lstat().st_mtime)
        return time.time() - min(moments) if moments else None

    # ---- what else the instances write ----

    def has_opened_log(self, instance: str) -> bool:
        """Returns whether an instance has opened its log; before that, its output goes to the engine."""
        return self._has(f"{instance}.beat") or self._log_of(instance) != ""

    def log_times(self, instance: str) -> LogTimes:
        """Returns the recorded sizes of an instance's log; empty if the image cannot record them."""
        return LogTimes.read(self.times_file(instance))

    def times_file(self, instance: str) -> Path:
        """Returns the file with the recorded sizes of an instance's log."""
        return self.path / f"{instance}.times"

    def log_tail(self, instance: str, lines: int) -> list[str]:
        """Returns the last lines of an instance's log."""
        return self._log_of(instance).splitlines()[-lines:]

    def ran_out_of_memory(self, instance: str) -> bool:
        """Returns whether the kernel has killed a process in it for lack of memory, by its own counters."""
        return self._has(f"{instance}.memory")

    @property
    def requirements_failed(self) -> bool:
        """Returns whether the requirements could not be installed."""
        return self._has("requirements.failed")

    @property
    def requirements_problem(self) -> str:
        """Returns why pip could not be run at all; empty if it was."""
        return " ".join(self._text("requirements.failed").split())[:_MAX_PROBLEM_CHARACTERS]

    def pip_problem(self, instance: str) -> str:
        """Returns the error of pip in the log of the instance that installed the requirements."""
        return pip_problem(self._log_of(instance))

    def _log_of(self, instance: str) -> str:
        """Returns the tail of a log."""
        try:
            with (self.path.parent / "logs" / f"{instance}.log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _MAX_TEXT_BYTES))
                return log.read(_MAX_TEXT_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def _has(self, name: str) -> bool:
        # A link is not followed.
        return os.path.lexists(self.path / name)

    def _text(self, name: str) -> str:
        try:
            return self._read(name)[0]
        except OSError:
            return ""
