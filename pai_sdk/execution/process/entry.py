"""Running a command beside an instance that is a process of this machine: same `/ml`, folder and variables.

The process is found by the variable `PAI_INSTANCE_NAME`. Only processes of the caller's own user count: the kernel
does not let other users read their variables, and root must not enter a `/ml` that another user has made.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pai_sdk.agent.processes import exit_code

__all__ = ["ProcessEntry", "find_process_entry"]

_NAMESPACES = {"user": 0x10000000, "mnt": 0x00020000}  # the user namespace first: it permits the other
_NO_COMMAND, _REFUSED = 127, 126  # as of a shell
_START_TIME = 19  # its place in /proc/PID/stat, behind the name


class ProcessEntry:
    """A way into an instance.

    Args:
        process: the folder in /proc of its first process.
    """

    def __init__(self, process: Path) -> None:
        self._process = process

    def run(self, command: Sequence[str]) -> int:
        """Run a command with the terminal and the streams of this process.

        Args:
            command: the program and its arguments.

        Returns:
            Its exit code, as a shell gives it; 127 if there is no such program, 126 if it cannot be started.
        """
        child = os.fork()
        if child == 0:
            code = _REFUSED
            try:
                self._become(command)
            except FileNotFoundError:
                os.write(2, os.fsencode(f"pai-sdk: there is no program {command[0]!r} in the job\n"))
                code = _NO_COMMAND
            except BaseException as error:  # a child must never run on into its parent's code
                os.write(2, os.fsencode(f"pai-sdk: the job cannot be entered: {error}\n"))
            finally:
                os._exit(code)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
        try:
            return exit_code(os.waitpid(child, 0)[1])
        finally:
            signal.signal(signal.SIGINT, before)

    def _become(self, command: Sequence[str]) -> None:
        """Move to where the process is, and become the command; returns only by an error."""
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        entries = (self._process / "environ").read_bytes().split(b"\0")
        pairs = (entry.partition(b"=") for entry in entries if entry)
        pairs = (entry.partition(b"=") for entry in entries if entry)
        variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
        for key in ("TERM", "COLORTERM"):  # of this terminal
            if value := os.environ.get(key):
                variables[key] = value
        root = os.open(self._process / "root", os.O_RDONLY | os.O_DIRECTORY)
        spaces = {name: os.open(self._process / "ns" / name, os.O_RDONLY) for name in _NAMESPACES}
        is_apart = False
        for name, descriptor in spaces.items():
            if not os.path.samestat(os.fstat(descriptor), Path(f"/proc/self/ns/{name}").stat()):
                _set_namespace(descriptor, _NAMESPACES[name])
                is_apart = True
        if is_apart:
            os.fchdir(root)
            os.chroot(".")
        folder = variables.get("PAI_WORKING_DIR", "/")
        try:
            os.chdir(folder)
        except OSError as error:
            raise OSError(f"{folder}: {error.strerror}") from error
        os.execvpe(command[0], list(command), variables)  # noqa: S606 - the command of the user


def find_process_entry(instance: str) -> ProcessEntry | None:
    """The way into an instance, if it is a process of this machine and of this user; on Linux.

    Args:
        instance: its full name.
    """
    mark, found = f"PAI_INSTANCE_NAME={instance}".encode(), list[tuple[int, int]]()
    if sys.platform != "linux":
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has ended, or belongs to another user
            is_ours = process.stat().st_uid == os.geteuid()
            if is_ours and mark in (process / "environ").read_bytes().split(b"\0"):
                # "pid (any name) state ppid …": the name may have spaces and parentheses.
                fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                found.append((int(fields[_START_TIME]), int(process.name)))
    return ProcessEntry(Path("/proc") / str(min(found)[1])) if found else None


def _set_namespace(descriptor: int, kind: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, kind) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
