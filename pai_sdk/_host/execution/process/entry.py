"""Runs a command beside an instance that is a process of this machine: same `/ml`, folder and variables.

The process is identified by the variable `PAI_INSTANCE_NAME`. Only processes of the caller's own user are
considered: the kernel does not let other users read their variables, and root must not enter a `/ml` that another
user created.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pai_sdk._host.agent.processes import exit_code

# In this order: the user namespace permits entering the other.
_NAMESPACES = {
    "user": 0x10000000,
    "mnt": 0x00020000,
}
# The exit codes of a POSIX shell.
_NO_COMMAND, _CANNOT_EXECUTE = 127, 126
_START_TIME = 19  # index in /proc/PID/stat, counted behind the name


class ProcessEntry:
    """Enters an instance; `process` is the folder in /proc of its first process."""

    def __init__(self, process: Path) -> None:
        self._process = process

    def run(self, command: Sequence[str]) -> int:
        """Runs a command with this process's terminal and streams; returns the exit code."""
        child = os.fork()
        if child == 0:
            # As for a shell: 127 if there is no such program, 126 if it cannot be started.
            code = _CANNOT_EXECUTE
            try:
                self._become(command)
            except FileNotFoundError:
                os.write(2, os.fsencode(f"pai-sdk: there is no program {command[0]!r} in the job\n"))
                code = _NO_COMMAND
            except BaseException as error:
                # A forked child must never return into its parent's code.
                os.write(2, os.fsencode(f"pai-sdk: the job cannot be entered: {error}\n"))
            finally:
                os._exit(code)
        # The terminal sends Ctrl-C to both; only the command acts on it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return exit_code(os.waitpid(child, 0)[1])
        finally:
            signal.signal(signal.SIGINT, before)

    def _become(self, command: Sequence[str]) -> None:
        """Enters the namespaces of the process and executes the command; returns only by an error."""
        # Ignored signals survive exec, and Python ignores SIGPIPE and SIGXFSZ: reset them for the command.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        entries = (self._process / "environ").read_bytes().split(b"\0")
        pairs = (entry.partition(b"=") for entry in entries if entry)
        variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
        for key in ("TERM", "COLORTERM"):  # of this terminal
            if value := os.environ.get(key):
                variables[key] = value
        root = os.open(self._process / "root", os.O_RDONLY | os.O_DIRECTORY)
        spaces = {name: os.open(self._process / "ns" / name, os.O_RDONLY) for name in _NAMESPACES}
        has_moved = False
        for name, descriptor in spaces.items():
            if not os.path.samestat(os.fstat(descriptor), Path(f"/proc/self/ns/{name}").stat()):
                _set_namespace(descriptor, _NAMESPACES[name])
                has_moved = True
        if has_moved:
            # The process may have changed its root after it entered the namespace.
            os.fchdir(root)
            os.chroot(".")
        folder = variables.get("PAI_WORKING_DIR", "/")
        try:
            os.chdir(folder)
        except OSError as error:
            raise OSError(f"{folder}: {error.strerror}") from error
        os.execvpe(command[0], list(command), variables)  # noqa: S606 - the command of the user


def find_process_entry(instance: str) -> ProcessEntry | None:
    """Returns the entry into an instance, by its full name, if it is a process of this user. Linux only."""
    variable, matches = f"PAI_INSTANCE_NAME={instance}".encode(), list[tuple[int, int]]()
    if sys.platform != "linux":
        return None
    for process in Path("/proc").glob("[0-9]*"):
        # The process has exited, or belongs to another user.
        with suppress(OSError, ValueError, IndexError):
            is_same_user = process.stat().st_uid == os.geteuid()
            if is_same_user and variable in (process / "environ").read_bytes().split(b"\0"):
                # "pid (any name) state ppid …": the name may have spaces and parentheses.
                fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                matches.append((int(fields[_START_TIME]), int(process.name)))
    # Children inherit the variable, so the oldest process is the instance itself.
    return ProcessEntry(Path("/proc") / str(min(matches)[1])) if matches else None


def _set_namespace(descriptor: int, kind: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
