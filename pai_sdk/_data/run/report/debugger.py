"""`breakpoint()` in a job: waits for `pai-sdk debug`, and lets the script go on if nobody comes.

Shipped with jobs: standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from pai_sdk._data.run.report.context import Context
from pai_sdk._data.run.report.debugger_editor import Editor
from pai_sdk._data.run.report.debugger_marker import Marker, debug_folder
from pai_sdk._data.run.report.debugger_terminal import Terminal, TerminalDebugger
from pai_sdk._data.run.report.debugger_variables import FORM_VARIABLE, WAIT_VARIABLE

_DEFAULT_WAIT_S = 3600.0


class _Session:
    """The debugger of this process.

    `_lock` guards the creation of terminal and editor; who waits for a client has `TerminalDebugger.lock`.
    """

    def __init__(self, context: Context) -> None:
        self.pid = os.getpid()
        self._context = context
        self._folder = debug_folder(os.environ)
        self._marker = Marker(self._folder / f"{self.pid}.json")
        self._lock = threading.Lock()
        self._terminal: Terminal | None = None
        self._editor: Editor | None = None
        self._debuggers = threading.local()
        self._position: dict[str, Any] = {}
        self._since = 0.0
        atexit.register(self.close)

    def close(self) -> None:
        """Removes the files of this process."""
        if self.pid == os.getpid():
            self._marker.remove()
            if self._terminal is not None:
                self._terminal.close()

    def stop_in_terminal(self, frame: FrameType, timeout_s: float) -> None:
        """Waits for a client, and lets it debug a frame."""
        with self._lock:
            if self._terminal is None:
                path = self._folder / f"{self.pid}.sock"
                self._terminal = Terminal(path, self._on_wait, self._on_join)
        terminal = self._terminal
        debugger = getattr(self._debuggers, "debugger", None)
        if debugger is None:
            # Each thread has its own: Pdb has one frame at a time.
            debugger = self._debuggers.debugger = _MarkedDebugger(terminal, self._marker)
        with TerminalDebugger.lock:
            self._enter(frame, "terminal")
            terminal.timeout_s = timeout_s
            if not terminal.join():
                self._give_up()
                return
        debugger.set_trace(frame)

    def stop_in_editor(self, frame: FrameType, timeout_s: float) -> None:
        """Waits for an editor, and lets it debug a frame; raises ImportError without debugpy."""
        with self._lock:
            if self._editor is None:
                self._editor = Editor(self._on_wait, self._on_join)
        self._enter(frame, "debugpy")
        try:
            self._editor.stop_at(frame, timeout_s)
        finally:
            self._give_up()

    def _enter(self, frame: FrameType, kind: str) -> None:
        self._since = time.time()
        self._position = {
            "kind": kind,
            "file": frame.f_code.co_filename,
            "function": frame.f_code.co_name,
            "line": frame.f_lineno,
        }

    def _give_up(self) -> None:
        self._marker.remove()

    def _on_wait(self, deadline: float) -> None:
        self._write("waiting", deadline)
        context, position = self._context, self._position
        editor = " --editor" if position["kind"] == "debugpy" else ""
        where = f"{position['function']} ({Path(position['file']).name}:{position['line']})"
        until = time.strftime("%H:%M:%S UTC", time.gmtime(deadline))
        command = f"pai-sdk debug {context.job_id or 'JOB'}:{context.rank}{editor}"
        _log(f"rank {context.rank} waits for a debugger in {where} until {until}; to join it: {command}")

    def _on_join(self) -> None:
        self._write("joined", None)

    def _write(self, state: str, deadline: float | None) -> None:
        content = {
            "rank": self._context.rank,
            "pid": self.pid,
            "instance": self._context.instance,
            "state": state,
            "since": self._since,
            "deadline": deadline,
            "port": None if self._editor is None else self._editor.port,
            "working_dir": os.environ.get("PAI_WORKING_DIR", ""),
        }
        self._marker.write({**content, **self._position})


class _MarkedDebugger(TerminalDebugger):
    """Removes the marker while the program runs."""

    def __init__(self, terminal: Terminal, marker: Marker) -> None:
        super().__init__(terminal)
        self._marker = marker

    def interaction(self, frame: FrameType | None, *arguments: Any) -> None:
        with self.lock:  # another thread may be next, with a marker of its own
            try:
                super().interaction(frame, *arguments)
            finally:
                self._marker.remove()


_session: _Session | None = None
_creating = threading.Lock()


def wait_for_debugger(timeout_s: float | None = None) -> None:
    """Stop here until `pai-sdk debug JOB:rank` joins; in jobs with a debugger, `breakpoint()` calls it.

    The log of the job has the command. Without a client in time, the script goes on. Nothing that a client does
    ends the job: `q` and Ctrl-D detach it, and after a lost connection it can join again. While a rank waits, the
    others may run into the timeout of a collective operation. Outside a job it is `pdb.set_trace()`.

    Args:
        timeout_s: how long to wait for a client, and for its next command; by default the job's variable
            `PAI_DEBUGGER_WAIT_S`, or 3,600 seconds.

    Example:
        >>> def training_step(loss: float) -> None:
        ...     if loss > 1000:
        ...         wait_for_debugger(timeout_s=600)
    """
    global _session
    frame = sys._getframe(1)
    context = Context.of_environment(os.environ)
    if context is None or sys.platform == "win32":  # no Unix sockets there
        import pdb

        pdb.Pdb().set_trace(frame)
        return
    try:
        with _creating:
            # A forked child has its own files; the parent's socket stays the parent's.
            if _session is None or _session.pid != os.getpid():
                _session = _Session(context)
            session = _session
        wait_s = _wait_s(timeout_s)
        if os.environ.get(FORM_VARIABLE) == "debugpy":
            try:
                session.stop_in_editor(frame, wait_s)
            except ImportError:
                _log(
                    "debugpy is not installed in this job: add 'debugpy' to its requirements or its image. "
                    "A terminal can join meanwhile."
                )
            except RuntimeError as error:
                # A forked process cannot listen if its parent does.
                _log(f"no editor can join this process: {error}. A terminal can join it.")
            else:
                return
        session.stop_in_terminal(frame, wait_s)
    except (OSError, RuntimeError) as error:
        # A breakpoint is no reason to end the job.
        _log(f"this breakpoint is skipped, since no debugger can be started: {error}")


def _wait_s(timeout_s: float | None) -> float:
    if timeout_s is not None:
        return max(0.0, float(timeout_s))
    try:
        return max(0.0, float(os.environ.get(WAIT_VARIABLE, "")))
    except ValueError:
        return _DEFAULT_WAIT_S


def _log(message: str) -> None:
    stream = sys.__stderr__
    if stream is not None:
        stream.write(f"pai_sdk: {message}\n")
        stream.flush()
