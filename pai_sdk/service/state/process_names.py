"""Names a process so that others on its machine can see whether it still runs, and end it."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["ProcessName"]

_PROC = Path("/proc")
_LOOK_S = 0.01


@dataclass(frozen=True)
class ProcessName:
    """A process, among all that ever ran on its machine.

    Attributes:
        host: the name of its machine, for people.
        machine: the start of its kernel and the processes it sees; empty where the system does not tell.
        pid: its number.
        begun: when it began, in the kernel's ticks.

    Example:
        >>> ProcessName.parse(ProcessName.ours().to_json()) == ProcessName.ours()
        True
    """

    host: str
    machine: str
    pid: int
    begun: str

    @classmethod
    def ours(cls) -> ProcessName:
        """This process."""
        machine = ""
        with suppress(OSError):
            boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            machine = f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
        return cls(socket.gethostname(), machine, os.getpid(), _begun(os.getpid()) or "")

    @classmethod
    def parse(cls, text: str) -> ProcessName | None:
        """What `to_json` wrote; None for any other text."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    def is_here(self) -> bool:
        """True if it runs, or ran, where we can see it, and is another one than this process."""
        ours = ProcessName.ours()
        return bool(self.machine) and self.machine == ours.machine and self != ours

    def has_ended(self) -> bool:
        """True if it is known to have ended."""
        return self.is_here() and _begun(self.pid) != self.begun

    def kill(self, *, patience_s: float) -> bool:
        """Kill it where that is possible; it may be suspended.

        Returns:
            Whether it has ended.
        """
        deadline = time.monotonic() + patience_s
        while self.is_here() and not self.has_ended():
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                return False
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        return self.has_ended()


def _begun(pid: int) -> str | None:
    """When that process began; None if it does not run."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()  # the name may have spaces and parentheses
    return None if after_name[0] in "ZX" else after_name[19]
