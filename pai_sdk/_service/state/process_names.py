"""Identifies a process, so that other processes on its machine can check whether it runs, and kill it."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_INTERVAL_S = 0.01


@dataclass(frozen=True)
class ProcessName:
    """Identity of a process; unique among all processes that ever ran on its machine."""

    host: str  # for people
    machine: str  # boot id and PID namespace; empty where the system has no /proc
    pid: int  # in that namespace
    start_ticks: str  # in clock ticks since boot: a reused pid has another one

    @classmethod
    def current(cls) -> ProcessName:
        """Returns the identity of this process."""
        machine = ""
        with suppress(OSError):
            boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            # Process ids are unique only within one boot and one PID namespace (a container has its own).
            machine = f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
        return cls(socket.gethostname(), machine, os.getpid(), _start_ticks_of(os.getpid()) or "")

    @classmethod
    def parse(cls, text: str) -> ProcessName | None:
        """Parses what `to_json` wrote; returns None for any other string."""
        try:
            fields = json.loads(text)
            return cls(fields["host"], fields["machine"], fields["pid"], fields["begun"])
        except (ValueError, TypeError, KeyError):
            return None

    def to_json(self) -> str:
        """Returns one line of JSON."""
        # The key of the start time is the one that earlier releases wrote into leases.
        return json.dumps({"host": self.host, "machine": self.machine, "pid": self.pid, "begun": self.start_ticks})

    def is_observable(self) -> bool:
        """Returns True if it is another process whose state this process can observe."""
        current = ProcessName.current()
        return bool(self.machine) and self.machine == current.machine and self != current

    def has_exited(self) -> bool:
        """Returns True if it has certainly exited; False if it runs or cannot be observed."""
        return self.is_observable() and _start_ticks_of(self.pid) != self.start_ticks

    def kill(self, *, patience_s: float) -> bool:
        """Kills it with SIGKILL where that is permitted, even if suspended; returns True if it has exited."""
        deadline = time.monotonic() + patience_s
        while self.is_observable() and not self.has_exited():
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:  # exited since: the condition of the loop detects it
                continue
            except PermissionError:
                return False
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_INTERVAL_S)
        return self.has_exited()


def _start_ticks_of(pid: int) -> str | None:
    """Returns the start time of a process in clock ticks since boot; None if it does not run."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()  # the command's name may hold spaces and parentheses
    # Field 3 is the state, field 22 the start time (proc(5)). A zombie (Z) or dead (X) process does not run.
    return None if after_name[0] in "ZX" else after_name[19]
