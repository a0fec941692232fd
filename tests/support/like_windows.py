"""Makes this process look like Windows to what it imports from now on: for programs that a test starts.

What Python has on Unix only is gone: modules such as `fcntl`, and names in `os`, `signal`, `socket`. An open file
can be neither renamed nor removed, and a folder cannot be opened. The libraries are loaded before, as they are
here; what is looked at is pai_sdk.
"""

from __future__ import annotations

import importlib
import importlib.abc
import os
import signal
import socket
import sys
import types
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

__all__ = ["NO_MODULES", "become_windows"]

NO_MODULES = (
    "crypt",
    "fcntl",
    "grp",
    "nis",
    "posix",
    "pty",
    "pwd",
    "readline",
    "resource",
    "syslog",
    "termios",
    "tty",
)

# From the pages of the standard library: what they say is available on Unix only.
_NOT_IN = {
    "os": """
        chown chroot confstr copy_file_range ctermid environb eventfd fchdir fchmod fchown fdatasync fork
        forkpty fpathconf fstatvfs getegid geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp
        getpriority getresgid getresuid getsid getuid getxattr initgroups killpg lchown listxattr lockf
        login_tty major makedev memfd_create minor mkfifo mknod nice openpty pathconf pidfd_open pipe2
        posix_fadvise posix_fallocate posix_openpt posix_spawn posix_spawnp pread preadv pwrite pwritev readv
        register_at_fork removexattr sched_getaffinity sched_setaffinity sched_yield sendfile setegid seteuid
        setgid setgroups setns setpgid setpriority setregid setresgid setresuid setreuid setsid setuid setxattr
        splice statvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname unshare wait wait3 wait4 waitid writev
        WCOREDUMP WEXITSTATUS WIFEXITED WIFSIGNALED WIFSTOPPED WNOHANG WTERMSIG O_ASYNC O_CLOEXEC O_DIRECT
        O_DIRECTORY O_DSYNC O_NDELAY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC O_SYNC O_TMPFILE
    """,
    "signal": """
        SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGPWR SIGQUIT SIGSTOP SIGSYS
        SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ alarm
        getitimer pause pidfd_send_signal pthread_kill pthread_sigmask setitimer siginterrupt sigpending
        sigtimedwait sigwait sigwaitinfo
    """,
    "socket": "AF_NETLINK AF_PACKET AF_UNIX CMSG_LEN SCM_RIGHTS recv_fds send_fds socketpair_unix",
}
_O_BINARY = 0x8000
_LOADED_BEFORE = (
    "asyncio",
    "concurrent.futures.process",
    "multiprocessing.pool",
    "platform",
    "shutil",
    "subprocess",
    "tempfile",
    "uuid",
    "alibabacloud_credentials.provider",
    "oss2",
    "pathspec",
    "portalocker",
    "pydantic",
    "pydantic_core",
    "requests",
    "rich.console",
    "rich.markup",
    "tenacity",
    "tqdm.auto",
    "typer.testing",
)


def become_windows() -> None:
    """Take away what there is not on Windows, from all that is imported from now on."""
    assert not any(name.partition(".")[0] == "pai_sdk" for name in sys.modules)
    for name in _LOADED_BEFORE:
        importlib.import_module(name)
    for name in NO_MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _NoSuchModules())
    _keep_open_files_in_place()
    for lacking in (
        _Lacking(os, name="nt", open=_open_in_text_mode_unless_told, O_BINARY=_O_BINARY),
        _Lacking(sys, platform="win32", getwindowsversion=lambda: (10, 0)),
        _Lacking(signal),
        _Lacking(socket),
    ):
        sys.modules[lacking.__name__] = lacking


class _Lacking(types.ModuleType):
    """A module of the standard library without what only Unix has; libraries go on with the whole one."""

    def __init__(self, whole: types.ModuleType, **instead: Any) -> None:
        super().__init__(whole.__name__)
        lacks = _NOT_IN.get(whole.__name__, "").split()
        self.__dict__.update({name: value for name, value in vars(whole).items() if name not in lacks} | instead)


class _NoSuchModules(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in NO_MODULES:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


_open = os.open


def _open_in_text_mode_unless_told(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
    """Without O_BINARY, Windows writes two bytes for each line end, and takes byte 26 for the end of a file."""
    if not flags & _O_BINARY and not flags & os.O_CLOEXEC:  # which is what the built-in open() sets
        raise AssertionError(f"{path} is opened in text mode: O_BINARY is missing")
    if os.path.isdir(path):  # noqa: PTH112
        raise PermissionError(13, "Permission denied", str(path))
    return _open(path, flags & ~_O_BINARY, mode, **more)


def _keep_open_files_in_place() -> None:
    """Refuse to rename or remove what this process has open; pathlib of 3.11 and newer goes through these, too."""
    for name, places in {"rename": 2, "replace": 2, "unlink": 1, "remove": 1}.items():
        setattr(os, name, _refusing(getattr(os, name), places))


def _refusing(function: Callable[..., None], places: int) -> Callable[..., None]:
    def refused(*paths: Any, **more: Any) -> None:
        for path in paths[:places] if not more else ():
            if _is_open_here(path):
                raise PermissionError(13, "it is being used by another process (WinError 32)", os.fspath(path))
        function(*paths, **more)

    return refused


def _is_open_here(path: Any) -> bool:
    try:
        wanted = os.lstat(path)
    except OSError:
        return False
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            if os.path.samestat(os.fstat(int(descriptor)), wanted):
                return True
        except OSError:  # the listing's own, which is closed by now
            continue
    return False
