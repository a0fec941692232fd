"""Forks supervisors from a process that has loaded their modules, which saves most of the time of their start.

    executor ──command line, log, reply──▶ template ──fork──▶ main ──▶ guardian ──▶ supervisor
   (`supervisor_template`)                                      └── from here on: `supervisor`

The template is started like a supervisor, with `-I -S` and without variables, so its forks have nothing of the
executor's process. It has one thread, and exits when that process closes its socket or is gone. Each fork writes
the command line of a supervisor over its own, because `kill_supervisors` finds supervisors by it.

Standard library only. Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random  # noqa: F401 - each supervisor imports it late, for free ports
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pai_sdk._host.agent import supervisor
from pai_sdk._host.agent.job_execution import load_interpreter

_MAX_REQUEST_BYTES = 1 << 16
_ARG_START, _ARG_END = 45, 46  # index in /proc/PID/stat, counted behind the name


def main() -> int:
    """Forks a supervisor for each request on standard input, a socket, until its other end is closed."""
    arguments = _find_arguments()
    if arguments is None:
        return 1
    # Returns in the process that the executor waits for: the template is no child that it would have to reap.
    if os.fork():
        return 0
    _clear_room(*arguments)
    # The kernel reaps the forks.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests = socket.socket(fileno=0)
    _serve(requests, arguments)
    # The first job does not wait for it. Later ones must not load that of a release which was installed meanwhile.
    load_interpreter()
    # Collections in the forks would copy the pages of all objects that exist now.
    gc.freeze()
    while _serve(requests, arguments):
        pass
    return 0


def _serve(requests: socket.socket, arguments: tuple[int, int]) -> bool:
    """Forks a supervisor for the next request; returns False if there will be none."""
    request, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 2)
    # Without memory for a fork, the reply is closed, and the executor starts the supervisor itself.
    with suppress(OSError):
        if request and os.fork() == 0:
            _become_supervisor(arguments, request, *descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return bool(request)


def _find_arguments() -> tuple[int, int] | None:
    """Returns address and size of this process's command line; None if the system does not say it."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    content = Path("/proc/self/cmdline").read_bytes()
    # Some systems that imitate Linux give zeros.
    if not start or end - start != len(content) or ctypes.string_at(start, end - start) != content:
        return None
    return start, end - start


def _clear_room(address: int, size: int) -> None:
    """Removes the room for command lines from this process's own one, which `ps` would print."""
    length = len(ctypes.string_at(address, size).rstrip(b" \0"))
    ctypes.memset(address + length, 0, size - length)


def _become_supervisor(arguments: tuple[int, int], request: bytes, log: int, reply: int) -> NoReturn:
    """Acts as a process that was started with the command line of a request."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Descriptors that were received survive exec: the job must not have them.
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (reply, 1), (log, 2)):
            os.dup2(source, target)
            os.close(source)
        address, size = arguments
        # In one piece, with zeros to the end: the kernel shows other texts in another form.
        ctypes.memmove(address, request.ljust(size, b"\0"), size)
        if supervisor.main(Path(os.fsdecode(request.split(b"\0")[-2]))) == 0:
            os.write(1, b"0")
    except BaseException:
        # Into the log. The executor reads the end of the reply.
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(0)
