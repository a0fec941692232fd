"""The view of an instance: its `/ml`, variables and working directory, for a process that enters it.

An instance is identified by the variable `PAI_INSTANCE_NAME`. Only processes of the own user are considered: the
kernel does not let other users read their variables, and root must not enter a `/ml` that another user created.

Standard library only. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk._host.agent.processes import descendants

MARKER = "PAI_TUNNEL_PROGRAM"
"""The variable of programs that were started through a tunnel."""

# In this order: the user namespace permits entering the other.
_NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x00020000,
}
_START_TIME = 19  # index in /proc/PID/stat, counted behind the name
# A process has no variables while exec replaces its program, as most do when an instance starts.
_EXEC_S, _EXEC_POLL_S = 1.0, 0.02


@dataclass(frozen=True)
class InstanceView:
    """Finds the processes of a job's instances.

    Attributes:
        ancestor: the process below which all of the job are, or 0 for all processes of this machine.
        default: the instance that is entered if none is selected.
    """

    ancestor: int
    default: str
    _recent: dict[str, int] = field(default_factory=dict)

    def processes(self, instance: str) -> list[int]:
        """Returns the process of an instance and all below it; nothing if it does not run."""
        leader = self.leader(instance)
        return [leader, *descendants(leader)] if leader else []

    def leader(self, instance: str) -> int:
        """Returns the first process of an instance; 0 if it does not run."""
        instance = instance or self.default
        deadline = time.monotonic() + _EXEC_S
        while True:
            recent = self._recent.get(instance, 0)
            if not (recent and first_process(instance, [recent])):
                recent = self._recent[instance] = self._find(instance)
            if recent or time.monotonic() > deadline:
                return recent
            time.sleep(_EXEC_POLL_S)

    def _find(self, instance: str) -> int:
        candidates: Iterable[int] = (
            descendants(self.ancestor)
            if self.ancestor
            else [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        )
        return first_process(instance, candidates)


def first_process(instance: str, candidates: Iterable[int]) -> int:
    """Returns the first process of an instance, by its full name, among some; 0 if there is none."""
    variable, marker = f"PAI_INSTANCE_NAME={instance}".encode(), f"{MARKER}=".encode()
    matches: list[tuple[int, int]] = []
    for process in candidates:
        folder = Path("/proc") / str(process)
        # The process has exited, or belongs to another user.
        with suppress(OSError, ValueError, IndexError):
            if folder.stat().st_uid != os.geteuid():
                continue
            entries = (folder / "environ").read_bytes().split(b"\0")
            if variable in entries and not any(entry.startswith(marker) for entry in entries):
                # "pid (any name) state ppid …": the name may have spaces and parentheses.
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                matches.append((int(fields[_START_TIME]), process))
    # Children inherit the variable, so the oldest process is the instance itself.
    return min(matches)[1] if matches else 0


def variables_of(process: int) -> dict[str, str]:
    """Returns the variables that a process was started with."""
    file, deadline = Path(f"/proc/{process}/environ"), time.monotonic() + _EXEC_S
    while not (content := file.read_bytes()) and time.monotonic() < deadline:
        time.sleep(_EXEC_POLL_S)
    entries = content.split(b"\0")
    pairs = (entry.partition(b"=") for entry in entries if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def enter(process: int) -> None:
    """Moves this process, which must have one thread only, into the namespaces and the root of another one."""
    folder = Path("/proc") / str(process)
    root = os.open(folder / "root", os.O_RDONLY | os.O_DIRECTORY)
    spaces = {name: os.open(folder / "ns" / name, os.O_RDONLY) for name in _NAMESPACES}
    has_moved = False
    for name, descriptor in spaces.items():
        if not os.path.samestat(os.fstat(descriptor), Path(f"/proc/self/ns/{name}").stat()):
            _set_namespace(descriptor, _NAMESPACES[name])
            has_moved = True
    if has_moved:
        # The process may have changed its root after it entered the namespace.
        os.fchdir(root)
        os.chroot(".")
    for descriptor in (root, *spaces.values()):
        os.close(descriptor)


def working_folder(variables: Mapping[str, str], folder: str | None) -> str:
    """Returns where a program runs: the job's working directory, or a folder that may be relative to it."""
    return str(Path(variables.get("PAI_WORKING_DIR", "/")) / (folder or ""))


def _set_namespace(descriptor: int, kind: int) -> None:
    if not sys.platform.startswith("linux"):
        raise OSError("namespaces need Linux")
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
