"""The folder that the containers of one job share with us: what `instance.sh` reads and writes there."""

from __future__ import annotations

import importlib.resources
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.agent.journal import DISK_IS_FULL
from pai_sdk.agent.pip_output import pip_problem
from pai_sdk.agent.reasons import REASON_STOPPED_FROM_OUTSIDE
from pai_sdk.base.files import open_file, publish_once, replace_file
from pai_sdk.execution.log_times import LogTimes, open_plain

__all__ = ["InstanceExit", "SharedFolder"]

_LONGEST_TEXT_BYTES = 64 * 1024
_LONGEST_PROBLEM = 300
# Words of `instance.sh`.
_TOLD_BY_SIGNAL = "signal"
_SILENT = "silent"


@dataclass(frozen=True)
class InstanceExit:
    """How an instance ended, by its own account.

    Attributes:
        code: its exit code.
        at: seconds since 1970, UTC.
    """

    code: int
    at: float


class SharedFolder:
    """The files by which a job's containers and their executor communicate. Each is written as a whole.

    The containers can write here, so nothing that is read is trusted: neither what it says nor that it is a file.

    Example:
        >>> SharedFolder(Path("/srv/jobs/local-1/shared")).has_begun
        False
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    # ---- what we write ----

    def prepare(self, texts: Mapping[str, str], requirements: Iterable[str]) -> None:
        """Write the script, the settings and variables (they may be secrets), and what pip is to install.

        Args:
            texts: the files of the instances, by name.
            requirements: lines for pip.
        """
        for folder in (self.path, self.path / "home", self.path / "pip-cache"):
            folder.mkdir(parents=True, exist_ok=True)
        script = importlib.resources.files("pai_sdk.execution.docker").joinpath("instance.sh").read_text("utf-8")
        lines = "".join(f"{line}\n" for line in requirements)  # an index URL may hold a password
        files = {"instance.sh": script, **texts, **({"requirements.txt": lines} if lines else {})}
        for name, text in files.items():
            self._publish(name, text)

    def go(self) -> None:
        """All instances stand: let them begin."""
        self._publish_first("go", f"{time.time():.3f}\n")

    def ask_to_stop(self, reason_code: str, reason_message: str) -> None:
        """Have the instances end; the first reason stays. On a full disk they end without one."""
        wish = {"reason_code": reason_code, "reason_message": reason_message}
        try:
            self._publish_first("stop", json.dumps(wish))
        except OSError as error:
            if error.errno not in DISK_IS_FULL:
                raise
            with suppress(OSError):
                os.close(open_file(self.path / "stop", os.O_WRONLY | os.O_CREAT | os.O_EXCL))

    def tell_lost(self, instance: str) -> None:
        """Write down that an instance gave no sign of life, before it is killed."""
        with suppress(OSError):
            self._publish_first(f"{instance}.why", "peer\n")

    def tell_failure(self, instance: str, exit_code: int) -> None:
        """Tell the others of an instance that could not tell itself; the first failure stays."""
        with suppress(OSError):
            self._publish_first("failed", f"{instance} {exit_code}\n")

    # ---- what we read ----

    @property
    def has_begun(self) -> bool:
        """Whether the instances were let go."""
        return (self.path / "go").exists()

    @property
    def begun_at(self) -> float | None:
        """When they were, in seconds since 1970."""
        try:
            return float(self._text("go"))
        except ValueError:
            return None

    def has_started(self, instance: str) -> bool:
        """Whether the command of an instance was started; before, requirements are installed."""
        return (self.path / f"{instance}.started").exists()

    def exit_of(self, instance: str) -> InstanceExit | None:
        """How an instance ended; None while it runs, or when it could not say."""
        try:
            text, at = self._read(f"{instance}.exit")
            return InstanceExit(int(text), at)
        except (OSError, ValueError):
            return None

    def has_opened_log(self, instance: str) -> bool:
        """Whether an instance came as far as to open its log; before, it speaks to the engine."""
        return (self.path / f"{instance}.beat").exists() or self._log_of(instance) != ""

    def log_times(self, instance: str) -> LogTimes:
        """When the log of an instance had which size; nothing where the image cannot tell."""
        return LogTimes.read(self.path / f"{instance}.times")

    def why(self, instance: str) -> str:
        """Why an instance was ended by us: `stopped`, `timeout`, `peer`; empty when it was not."""
        return self._text(f"{instance}.why")

    @property
    def stop_wish(self) -> tuple[str, str] | None:
        """Reason code and sentence of the wish to stop."""
        try:
            wish = json.loads(self._read("stop")[0])
            return str(wish["reason_code"]), str(wish["reason_message"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):  # on a full disk it is empty
            is_signal = self._text("stop") == _TOLD_BY_SIGNAL
            return REASON_STOPPED_FROM_OUTSIDE if is_signal else "", ""

    @property
    def end_asked_s_ago(self) -> float | None:
        """How long ago the instances were told to end, for whatever reason; None when they were not."""
        moments = []
        for name in ("stop", "failed", "timeout"):
            with suppress(OSError):
                moments.append((self.path / name).lstat().st_mtime)
        return time.time() - min(moments) if moments else None

    @property
    def first_failure(self) -> tuple[str, int] | None:
        """The instance that failed first, and its exit code."""
        note = self._failure
        return (note[0], int(note[1])) if note else None

    @property
    def is_failure_silence(self) -> bool:
        """Whether that instance only gave no sign of life, so that the others took it for lost."""
        return bool(self._failure) and self._failure[2:] == [_SILENT]

    @property
    def _failure(self) -> list[str]:
        words = self._text("failed").split()
        is_note = len(words) == 2 or (len(words) == 3 and words[2] == _SILENT)
        return words if is_note and words[1].isdecimal() else []

    def ran_out_of_memory(self, instance: str) -> bool:
        """Whether the kernel has killed something in it for want of memory, by the container's own counters."""
        return (self.path / f"{instance}.memory").exists()

    def is_at_its_end(self, instance: str) -> bool:
        """Whether an instance has ended, or still gives its files to their owner."""
        return any((self.path / f"{instance}.{name}").exists() for name in ("exit", "exit.part"))

    def log_tail(self, instance: str, lines: int) -> list[str]:
        """The last lines of an instance's log."""
        return self._log_of(instance).splitlines()[-lines:]

    @property
    def requirements_problem(self) -> str:
        """Why pip could not be run at all; empty where it was."""
        return " ".join(self._text("requirements.failed").split())[:_LONGEST_PROBLEM]

    @property
    def requirements_failed(self) -> bool:
        """Whether the requirements could not be installed."""
        return (self.path / "requirements.failed").exists()

    def pip_problem(self, instance: str) -> str:
        """What pip complained of in the log of the instance that installed the requirements."""
        return pip_problem(self._log_of(instance))

    def forget_secrets(self) -> None:
        """Remove the variables; they are not needed after the end."""
        for file in self.path.glob("*.env"):
            file.unlink(missing_ok=True)

    def _publish(self, name: str, text: str) -> None:
        """Write a file that is there whole or not at all: a shell reads its script while it goes on."""
        # The draft is hidden from the script's patterns, but not from `forget_secrets`.
        replace_file(self.path / name, text, draft=self.path / f".{name}")

    def _publish_first(self, name: str, text: str) -> None:
        """Write a file that is there whole or not at all, unless it is there already: the first one stays."""
        publish_once(self.path / name, text, mode=0o666)  # for a container of any user

    def _log_of(self, instance: str) -> str:
        """The end of a log."""
        try:
            with (self.path.parent / "logs" / f"{instance}.log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LONGEST_TEXT_BYTES))
                return log.read(_LONGEST_TEXT_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def _text(self, name: str) -> str:
        try:
            return self._read(name)[0]
        except OSError:
            return ""

    def _read(self, name: str) -> tuple[str, float]:
        """What a file says, and when it was written."""
        with open_plain(self.path / name) as file:
            text = file.read(_LONGEST_TEXT_BYTES).decode(errors="replace").strip()
            return text, os.fstat(file.fileno()).st_mtime
