"""Processes of the kernel: starts one in its own session, finds and kills a complete tree.

Standard library only. Outside Linux there are no sub-reapers: a process that leaves its group is not found there.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IS_LINUX = sys.platform.startswith("linux")
# Python ignores these for itself; a program started by it should find them as everywhere.
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
_NOT_STARTED = 125
_MAX_KILL_S = 5.0


def adopt_orphans() -> None:
    """Makes this process the parent of every orphaned descendant, so that `descendants` finds all."""
    if _IS_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def spawn(
    arguments: Sequence[str], environment: Mapping[str, str], *, log: int, before_exec: Callable[[], None]
) -> int:
    """Starts a program in its own session, which is killed when this process exits; returns the process id."""
    # Both ends are closed by exec, so any content is an error.
    reader, writer = os.pipe()

    def become() -> int:
        try:
            os.close(reader)
            # In the new process.
            before_exec()
            # Again: a change of credentials makes the kernel forget it.
            die_with_parent()
            os.execve(arguments[0], list(arguments), dict(environment))  # noqa: S606 - a shell is the program
        except Exception as error:
            os.write(writer, (str(error) or repr(error)).encode()[:4000])
        return _NOT_STARTED

    try:
        child = spawn_call(become, log=log)
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as errors:
        problem = errors.read()
    if problem:
        os.waitpid(child, 0)
        raise OSError(problem.decode(errors="replace"))
    return child


def spawn_call(function: Callable[[], int], *, log: int) -> int:
    """Calls a function in a new process, set up as by `spawn`; its return value is the exit code."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = _NOT_STARTED
    try:
        # A session and group of its own, so that killpg reaches all of its processes.
        os.setsid()
        die_with_parent()
        # The parent exited before die_with_parent took effect.
        if os.getppid() != parent:
            os._exit(code)
        # The wake-up pipe belongs to the parent.
        signal.set_wakeup_fd(-1)
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        code = function()
    except BaseException:
        # A child must never continue in its parent's code.
        with suppress(OSError):
            os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def exit_code(wait_status: int) -> int:
    """Returns the exit code as a shell reports it: 128 + n for signal n."""
    code = os.waitstatus_to_exitcode(wait_status)
    return 128 - code if code < 0 else code


def signal_group(leader: int, number: int) -> None:
    """Sends a signal to a process and to all that are still in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_group(leader: int) -> None:
    """Kills a process and all that are still in its group."""
    signal_group(leader, signal.SIGKILL)


def session_leaders(*started_with: str) -> Iterator[tuple[Path, list[str]]]:
    """Yields session leaders that were started with one of some arguments: folder in /proc, and all arguments."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = [os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0")]
            if not {*started_with}.isdisjoint(arguments) and os.getsid(int(process.name)) == int(process.name):
                yield process, arguments


def descendants(ancestor: int, *, without: int = 0) -> list[int]:
    """Returns all processes below one, nearest first, `without` one of them and all below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # "pid (any name) state ppid …": the name may have spaces and parentheses.
            parent = int(stat.read_bytes().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    processes: list[int] = []
    level = [ancestor]
    while level:
        level = [child for parent in level for child in children.get(parent, ()) if child != without]
        processes += level
    return processes


def reap() -> Iterator[tuple[int, int]]:
    """Yields the children that have exited since the last call: process id and exit code."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        yield child, exit_code(status)


def kill_descendants() -> Iterator[tuple[int, int]]:
    """Kills all processes below this one, until none remains; yields id and exit code of its own children."""
    while True:
        yield from reap()
        if not _has_children():
            return
        # Repeated by the outer loop: a process may fork between the listing and its kill.
        for process in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            child, status = os.waitpid(-1, 0)
            yield child, exit_code(status)


def kill_orphans(mark: str, *, within: str, ml: Path) -> None:
    """Kills all processes of an instance whose ancestors have exited, so that no tree leads to them.

    Args:
        mark: a `NAME=value` that the instance was started with.
        within: a folder that its variables also name: a job of another service may have the same name.
        ml: the folder that it sees as `/ml`, even after it has dropped its variables.
    """
    variable, folder = mark.encode(), os.fsencode(within)
    try:
        status = ml.stat()
        ml_id: tuple[int, int] | None = (status.st_dev, status.st_ino)
    except OSError:
        ml_id = None
    # A process that hangs in the kernel cannot be killed at all.
    deadline = time.monotonic() + _MAX_KILL_S
    killed = 1
    # Again, for processes that were started between the listing and the kill.
    while killed and time.monotonic() < deadline:
        orphans = [
            process
            for process in Path("/proc").glob("[0-9]*")
            if _is_marked(process, variable, folder) or _has_ml_root(process, ml_id)
        ]
        killed = len(orphans)
        for process in orphans:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(process.name), signal.SIGKILL)
        time.sleep(0.01 if killed else 0)


def _is_marked(process: Path, variable: bytes, folder: bytes) -> bool:
    try:
        environment = (process / "environ").read_bytes()
    except OSError:
        # It has exited, or belongs to another user.
        return False
    return folder in environment and variable in environment.split(b"\0")


def _has_ml_root(process: Path, ml_id: tuple[int, int] | None) -> bool:
    try:
        status = (process / "root" / "ml").stat()
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == ml_id


def groups_below(ancestor: int, *, without: int = 0) -> list[int]:
    """Returns the process groups of all processes below one, each once, nearest first; see `descendants`."""
    groups: dict[int, None] = {}
    for process in descendants(ancestor, without=without):
        with suppress(OSError):
            groups[os.getpgid(process)] = None
    return [*groups]


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent, more exactly the thread that forked it, exits."""
    if _IS_LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")
