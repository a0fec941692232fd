"""What a process becomes after it was forked for a tunnel: a program of the job, or a function in the job's view.

It has one thread, which the namespaces need. Standard library only.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import locale
import os
import shlex
import signal
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pai_sdk._host.agent.processes import die_with_parent
from pai_sdk._host.agent.tunnel.job_view import MARKER, enter, variables_of, working_folder

# The exit codes of a POSIX shell.
_NO_COMMAND, _CANNOT_EXECUTE = 127, 126
_HUNG_UP = 129
EVENTS = 3
"""The descriptor on which a function writes JSON lines."""

FUNCTIONS = {
    "read_archive": "pai_sdk._host.agent.tunnel.in_job.archives",
    "write_archive": "pai_sdk._host.agent.tunnel.in_job.archives",
    "debuggers": "pai_sdk._host.agent.tunnel.in_job.debuggers",
    "sftp": "pai_sdk._host.agent.tunnel.in_job.sftp",
    "socket": "pai_sdk._host.agent.tunnel.in_job.unix_sockets",
}
"""The functions that run in the job's view, and their modules: `FUNCTION(parameters) -> exit code`."""

RESET_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)
_TERMINFO = ("/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo")
_DEFAULT_TERM = "xterm-256color"
_LOCALE = ("LANG", "LC_")


def run(request: Mapping[str, Any], descriptors: Sequence[int], parent: int) -> NoReturn:
    """Acts as the process that a request describes; `parent` has forked it."""
    code = _CANNOT_EXECUTE
    try:
        os.setsid()
        _die_with(parent)
        signal.set_wakeup_fd(-1)
        for number in RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, RESET_SIGNALS)
        _use(descriptors, is_terminal=bool(request.get("terminal")))
        code = _run(request, parent)
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException as error:
        # A forked child must never return into its parent's code.
        message = f"the job cannot be entered: {error}"
        with suppress(OSError):
            if request.get("function"):
                refuse("InternalError", message)
            else:
                os.write(2, os.fsencode(f"pai-sdk: {message}\n"))
    finally:
        os._exit(code)


def _run(request: Mapping[str, Any], parent: int) -> int:
    leader, function = int(request["leader"]), request.get("function")
    # Before it enters: the job may have put other files in place of this package.
    module = importlib.import_module(FUNCTIONS[function]) if function else None
    variables = variables_of(leader)
    enter(leader)
    # Again: a change of credentials makes the kernel forget it.
    _die_with(parent)
    variables = {**variables, **request["variables"], MARKER: str(request["marker"])}
    folder = working_folder(variables, request.get("cwd"))
    try:
        os.chdir(folder)
    except OSError as error:
        raise OSError(f"{folder}: {error.strerror}") from error
    if module is not None:
        os.environ.clear()
        os.environ.update(variables)
        # The client has left: a function removes its temporary files.
        signal.signal(signal.SIGHUP, _hang_up)
        code: int = getattr(module, str(function))(request["parameters"])
        return code
    _adapt(variables, request)
    return _execute(list(request["argv"]), variables)


def _die_with(parent: int) -> None:
    """Ends this process with its parent, also if that has ended already."""
    die_with_parent()
    if os.getppid() != parent:
        raise SystemExit(_CANNOT_EXECUTE)


def _hang_up(*_: object) -> None:
    raise SystemExit(_HUNG_UP)


def _execute(command: list[str], variables: dict[str, str]) -> int:
    """Executes a program, or a login shell if there is none; returns an exit code if that fails."""
    program = command[0] if command else _shell(variables)
    arguments = command or [f"-{Path(program).name}"]
    try:
        os.execvpe(program, arguments, variables)  # noqa: S606 - the command of the user
    except FileNotFoundError:
        hint = f"; a command line needs a shell: sh -c {shlex.quote(program)}" if " " in program else ""
        os.write(2, os.fsencode(f"pai-sdk: there is no program {program!r} in the job{hint}\n"))
        return _NO_COMMAND
    except OSError as error:
        os.write(
            2, os.fsencode(f"pai-sdk: the program {program!r} cannot be started in the job: {error.strerror}\n")
        )
        return _CANNOT_EXECUTE


def _shell(variables: Mapping[str, str]) -> str:
    shells = [variables.get("SHELL", ""), "/bin/bash", "/usr/bin/bash"]
    return next((shell for shell in shells if shell and os.access(shell, os.X_OK)), "/bin/sh")


def _use(descriptors: Sequence[int], *, is_terminal: bool) -> None:
    """Makes the descriptors those of this process: stdin, stdout, stderr, and the events of a function."""
    if is_terminal:
        (terminal,) = descriptors
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        descriptors = (terminal, terminal, terminal)
    # Away from the numbers that are going to be replaced.
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 16) for descriptor in descriptors]
    for number, copy in enumerate(copies):
        os.dup2(copy, number)
    # Of the parent: what remains open keeps others from seeing the end of a pipe.
    os.closerange(max(3, len(copies)), 4096)


def _adapt(variables: dict[str, str], request: Mapping[str, Any]) -> None:
    """Replaces what this host or image does not have: the type of the terminal, and the language."""
    terminal = request.get("terminal")
    if terminal:
        variables["TERM"] = _supported_term(str(terminal.get("term") or _DEFAULT_TERM), variables)
    for name, value in request["variables"].items():
        if name.startswith(_LOCALE) and not _has_locale(value):
            variables[name] = "C.UTF-8"


def _supported_term(term: str, variables: Mapping[str, str]) -> str:
    folders = [variables.get("TERMINFO", ""), f"{variables.get('HOME', '')}/.terminfo", *_TERMINFO]
    if not term or "/" in term or term.startswith("."):
        return _DEFAULT_TERM
    for folder in folders:
        if folder and any((Path(folder) / first / term).exists() for first in (term[0], f"{ord(term[0]):x}")):
            return term
    return _DEFAULT_TERM


def _has_locale(name: str) -> bool:
    try:
        locale.setlocale(locale.LC_CTYPE, name)
    except (locale.Error, ValueError):
        return False
    return True


def report(event: Mapping[str, Any]) -> None:
    """Writes an event of a function; the first one is `opened` or `refused`."""
    data = memoryview(json.dumps(event).encode() + b"\n")
    while data:
        data = data[os.write(EVENTS, data) :]


def refuse(code: str, message: str) -> int:
    """Refuses the stream of a function; returns its exit code."""
    report({"refused": {"code": code, "message": message}})
    return 1


def reason(error: OSError) -> str:
    """Returns the sentence of an error about a file."""
    name = error.filename
    text = error.strerror or str(error)
    return f"{os.fsdecode(name)}: {text}" if isinstance(name, (str, bytes)) else text


if not sys.platform.startswith("linux"):  # pragma: no cover
    raise ImportError("tunnels into processes need Linux")
