"""What the kernel reports about a process: its parent, state, CPU time, system call, and first variables."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MAX_PROGRAM = 200
# By architecture: those that a process can wait in for a long time.
_SYSCALLS = {
    "x86_64": {
        **{
            0: "read",
            1: "write",
            7: "poll",
            16: "ioctl",
            17: "pread64",
            18: "pwrite64",
            23: "select",
            34: "pause",
        },
        **{35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg"},
        **{47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 202: "futex"},
        **{230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 262: "newfstatat"},
        **{270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4", 449: "futex_waitv"},
    },
    "aarch64": {
        **{22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write"},
        **{67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 79: "newfstatat", 82: "fsync"},
        **{83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 202: "accept"},
        **{203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 242: "accept4"},
        **{260: "wait4", 449: "futex_waitv"},
    },
}.get(platform.machine(), {})
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]*$")
# Options of Python that a value follows.
_VALUE_OPTIONS = frozenset({"-W", "-X", "--check-hash-based-pycs"})


@dataclass
class KernelProcess:
    """A process as the kernel describes it."""

    pid: int
    parent_pid: int
    name: str
    state: str
    cpu_s: float
    started_at: int  # ticks since boot; with the process id, it names a process for ever
    arguments: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)
    is_python: bool = False
    switches: int = 0  # of the main thread to another one: without any, it has not run

    @property
    def program(self) -> str:
        """The name of the program, and of its script or module; no other arguments, which may have secrets."""
        if not self.arguments:
            return self.name
        name = Path(self.arguments[0]).name or self.name
        return (
            f"{name} {_script(self.arguments)}".strip()[:_MAX_PROGRAM] if self.is_python else name[:_MAX_PROGRAM]
        )


def read_process(pid: int, *, variables: Sequence[str] = ()) -> KernelProcess | None:
    """Returns a process with some of its variables; None if it has exited."""
    folder = Path("/proc") / str(pid)
    try:
        # "pid (any name) state ppid …": the name may have spaces and parentheses.
        head, _, tail = (folder / "stat").read_bytes().rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    process = KernelProcess(
        pid,
        int(fields[1]),
        os.fsdecode(head.partition(b"(")[2]),
        fields[0].decode(),
        (int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        int(fields[19]),
    )
    with suppress(OSError, ValueError):
        lines = (folder / "status").read_text().splitlines()
        process.switches = sum(int(line.split()[1]) for line in lines if "voluntary_ctxt_switches" in line)
    # Of another user's process, these cannot be read.
    with suppress(OSError):
        process.arguments = [os.fsdecode(each) for each in (folder / "cmdline").read_bytes().split(b"\0")][:-1]
    if variables:
        with suppress(OSError):
            entries = (each.partition(b"=") for each in (folder / "environ").read_bytes().split(b"\0"))
            names = {os.fsencode(name) for name in variables}
            process.variables = {os.fsdecode(n): os.fsdecode(value) for n, _, value in entries if n in names}
    process.is_python = _runs_python(folder, process)
    return process


def wait_of(pid: int) -> tuple[str, str]:
    """Returns the kernel function and the system call that a process waits in; empty where that is not shown."""
    folder = Path("/proc") / str(pid)
    wchan = syscall = ""
    with suppress(OSError):
        wchan = (folder / "wchan").read_text()
    with suppress(OSError):
        # "running", "-1 …" outside of a call, or its number and arguments.
        number = (folder / "syscall").read_text().split()[:1]
        if number and number[0].isdecimal():
            syscall = _SYSCALLS.get(int(number[0]), number[0])
    return ("" if wchan == "0" else wchan), syscall


def _runs_python(folder: Path, process: KernelProcess) -> bool:
    try:
        if _PYTHON.match((folder / "exe").readlink().name):
            return True
        # Programs that embed Python; the file is short work for the kernel, but not for each process of a host.
        return b"libpython" in (folder / "maps").read_bytes()
    except OSError:
        # Of another user: its command has to do.
        return bool(process.arguments and _PYTHON.match(Path(process.arguments[0]).name))


def _script(arguments: Sequence[str]) -> str:
    """Returns the script, `-m MODULE` or `-c` of a command line of Python."""
    position = 1
    while position < len(arguments):
        word = arguments[position]
        if word == "-m":
            return f"-m {arguments[position + 1]}" if position + 1 < len(arguments) else "-m"
        if not word.startswith("-") or word == "-":
            return Path(word).name or word
        # Such as `-c`, and `-Ic`: the text behind it is code.
        if word[1:2] != "-" and word.endswith("c"):
            return "-c"
        position += 2 if word in _VALUE_OPTIONS else 1
    return ""
