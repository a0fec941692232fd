"""The terminal of this process, while a program of a job uses it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

_DEFAULT_SIZE = 24, 80


def has_terminal() -> bool:
    """Returns whether stdin and stdout are a terminal that can be switched to raw mode."""
    if sys.platform == "win32":  # its consoles have no raw mode that termios could set
        return False
    try:
        return os.isatty(sys.stdin.fileno()) and os.isatty(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):  # replaced by an object, as in notebooks, or closed
        return False


def terminal_size() -> tuple[int, int]:
    """Returns rows and columns."""
    for stream in (sys.stdout, sys.stdin, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            size = os.get_terminal_size(stream.fileno())
            if size.lines and size.columns:
                return size.lines, size.columns
    return _DEFAULT_SIZE


def terminal_parameters() -> dict[str, Any]:
    """Returns the parameter `terminal` of a program: kind and size of this terminal."""
    rows, columns = terminal_size()
    return {"term": os.environ.get("TERM") or "xterm-256color", "rows": rows, "columns": columns}


@contextmanager
def raw_terminal(on_resize: Callable[[], None]) -> Iterator[None]:
    """Passes each key to the program, Ctrl-C too; restores the terminal at each exit, by a signal too."""
    if sys.platform == "win32":
        raise OSError("consoles of Windows have no raw mode")
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    with ExitStack() as handlers:
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Their default action would end the process and leave the terminal raw.
            handlers.enter_context(handled(number, _exit))
        handlers.enter_context(handled(signal.SIGWINCH, lambda _number, _frame: on_resize()))
        try:
            tty.setraw(descriptor)
            yield
        finally:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def handled(number: int, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handles a signal in its block; nothing changes outside of the main thread, or if the signal is ignored."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
