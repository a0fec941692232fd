"""The folder that the containers of one job share with us: what `instance.sh` reads and writes there."""

from __future__ import annotations

import errno
import importlib.resources
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.execution.journal import DISK_IS_FULL
from pai_sdk.execution.pip_output import pip_problem

__all__ = ["InstanceExit", "RunFolder"]


@dataclass(frozen=True)
class InstanceExit:
    """How an instance ended, by its own account.

    Attributes:
        code: its exit code.
        at: seconds since 1970, UTC.
    """

    code: int
    at: float


class RunFolder:
    """The files of one job's run. Each is written whole by one side and only read by the other.

    Example:
        >>> RunFolder(Path("/srv/jobs/local-1/run")).has_begun
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
        for folder in (self.path, self.path / "logs", self.path / "home", self.path / "pip-cache"):
            folder.mkdir(parents=True, exist_ok=True)
        script = importlib.resources.files("pai_sdk.execution.docker").joinpath("instance.sh").read_bytes()
        (self.path / "instance.sh").write_bytes(script)
        for name, text in texts.items():
            with os.fdopen(os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
        lines = [f"{line}\n" for line in requirements]
        if lines:
            (self.path / "requirements.txt").write_text("".join(lines), encoding="utf-8")

    def go(self) -> None:
        """All instances stand: let them begin."""
        (self.path / "go").write_text(f"{time.time():.3f}\n")

    def ask_to_stop(self, reason_code: str, reason_message: str) -> None:
        """Have the instances end; the first reason stays. On a full disk they end without one."""
        try:
            with (self.path / "stop").open("x") as file:
                json.dump({"reason_code": reason_code, "reason_message": reason_message}, file)
        except OSError as error:
            if error.errno not in (errno.EEXIST, *DISK_IS_FULL):
                raise

    def tell_failure(self, instance: str, exit_code: int) -> None:
        """Tell the others of an instance that could not tell itself; the first failure stays."""
        with suppress(OSError), (self.path / "failed").open("x") as file:
            file.write(f"{instance} {exit_code}\n")

    # ---- what we read ----

    @property
    def has_begun(self) -> bool:
        """Whether the instances were let go."""
        return (self.path / "go").exists()

    @property
    def begun_at(self) -> float | None:
        """When they were, in seconds since 1970."""
        try:
            return float((self.path / "go").read_text())
        except (OSError, ValueError):
            return None

    def has_started(self, instance: str) -> bool:
        """Whether the command of an instance was started; before, requirements are installed."""
        return (self.path / f"{instance}.started").exists()

    def exit_of(self, instance: str) -> InstanceExit | None:
        """How an instance ended; None while it runs, or when it could not say."""
        try:
            with (self.path / f"{instance}.exit").open() as file:
                return InstanceExit(int(file.read()), os.fstat(file.fileno()).st_mtime)
        except (OSError, ValueError):
            return None

    def has_log(self, instance: str) -> bool:
        """Whether an instance came as far as to open its log."""
        return (self.path.parent / "logs" / f"{instance}.log").exists()

    def why(self, instance: str) -> str:
        """Why an instance was ended by us: `stopped`, `timeout`, `peer`; empty when it was not."""
        return self._text(f"{instance}.why")

    @property
    def stop_wish(self) -> tuple[str, str] | None:
        """Reason code and sentence of the wish to stop."""
        text = self._text("stop")
        if not text:
            # The script writes an empty one when the container itself is told to end.
            return ("", "") if (self.path / "stop").exists() else None
        try:
            wish = json.loads(text)
        except ValueError:  # the disk was full, or it is being written now
            return "", ""
        return wish["reason_code"], wish["reason_message"]

    @property
    def stop_asked_s_ago(self) -> float | None:
        """How long ago the wish to stop was written down."""
        try:
            return time.time() - (self.path / "stop").stat().st_mtime
        except OSError:
            return None

    @property
    def first_failure(self) -> tuple[str, int] | None:
        """The instance that failed first, and its exit code."""
        instance, _, code = self._text("failed").partition(" ")
        return (instance, int(code)) if code else None

    @property
    def requirements_failed(self) -> bool:
        """Whether the requirements could not be installed."""
        return (self.path / "requirements.failed").exists()

    def pip_problem(self, instance: str) -> str:
        """What pip complained of in the log of the instance that installed the requirements."""
        try:
            text = (self.path.parent / "logs" / f"{instance}.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return pip_problem(text[-64 * 1024 :])

    def forget_secrets(self) -> None:
        """Remove the variables; nobody needs them after the end."""
        for file in self.path.glob("*.env"):
            file.unlink(missing_ok=True)

    def _text(self, name: str) -> str:
        try:
            return (self.path / name).read_text(encoding="utf-8").strip()
        except OSError:
            return ""
