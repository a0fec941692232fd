"""Runs the function of a `FunctionRun` in a separate process, which can be killed.

Two pipes connect the processes: messages of the function to the parent, and commands to the child. The child ends
itself when the parent is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from pai_sdk._core.function_pickle import dumps, pickler_class
from pai_sdk._data.run.functions.calling import error_message, error_of
from pai_sdk._data.run.functions.host import (
    AFTER_SAVE_S,
    Ended,
    Message,
    Outbox,
    Task,
    TrainingSession,
    log_wait,
    run_task,
)
from pai_sdk._data.run.report.report_session import Report
from pai_sdk.errors import FunctionError

_NEXT, _STOP, _SAVING = b"next", b"stop", b"saving"
_REPLY_S = 5.0  # of a child that does not hang
_POLL_INTERVAL_S = 0.2
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from pai_sdk._data.run.functions.process import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class ProcessHost:
    """Starts the process, and receives the function's messages from it. POSIX only."""

    def __init__(self, task: Task) -> None:
        call = dumps(task)
        results, child_results = os.pipe()
        child_commands, commands = os.pipe()
        self._name = task.run_id
        self._results = Connection(results, writable=False)
        self._commands = Connection(commands, readable=False)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), str(child_commands), str(child_results)],
                pass_fds=(child_commands, child_results),
                stdin=subprocess.DEVNULL,
                # A process group of its own, so that `_kill` reaches the children of the function too, and Ctrl-C
                # does not.
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        finally:
            os.close(child_commands)
            os.close(child_results)
        self.pid = self._process.pid
        with contextlib.suppress(BrokenPipeError):  # the process has exited; `take` returns the error
            self._commands.send_bytes(call)

    def request(self) -> None:
        """Lets a function in lock-step continue to its next report."""
        with contextlib.suppress(BrokenPipeError):
            self._commands.send_bytes(_NEXT)

    def take(self, timeout_s: float | None) -> Message | None:
        """Waits for the next message; if the process exits without its last one, returns the exit as an error."""
        try:
            if not self._results.poll(timeout_s):
                return None
            kind, value = pickle.loads(self._results.recv_bytes())  # noqa: S301 # from our own child
        except EOFError:
            return Ended(error=self._exit_error())
        if kind == "report":
            assert isinstance(value, Report)  # noqa: S101 # for the type checker
            return value
        self._process.wait()
        self._kill()  # children that the function has left behind
        self._close()
        checkpoint, content = value
        if kind == "error":
            return Ended(error=error_of(*content), checkpoint=checkpoint)
        return Ended(pickle.loads(content), checkpoint=checkpoint)  # noqa: S301 # from our own child

    @property
    def has_ended(self) -> bool:
        """True if the process has exited, and its pipes are closed."""
        return self._results.closed

    def stop(self, grace_s: float, save_s: float) -> None:
        """Makes the next report raise `StopTraining`, waits, then kills the process with its children."""
        if self._results.closed:
            return
        with contextlib.suppress(OSError):
            self._commands.send_bytes(_STOP)
        # Reads in a thread: the child may be blocked by a full pipe, and would never reach its next report.
        replies: queue.SimpleQueue[tuple[int, str] | None] = queue.SimpleQueue()
        drain = threading.Thread(target=self._drain, args=(replies,), daemon=True)
        drain.start()
        unfinished = None
        try:
            if not self._has_exited_within(grace_s):
                unfinished = self._wait_for_saves(replies, save_s)
        finally:
            self._kill()
            drain.join()
            self._close()
        # The checkpoint is lost.
        if unfinished is not None:
            step, verb = unfinished
            raise FunctionError(
                f"the process of {self._name} was killed: the checkpoint of step {step} was not {verb} within "
                f"{save_s:g} s"
            )

    def _wait_for_saves(
        self, replies: queue.SimpleQueue[tuple[int, str] | None], save_s: float
    ) -> tuple[int, str] | None:
        """Waits for the child's checkpoints; returns one that is not saved or validated in time, or None."""
        deadline = time.monotonic() + save_s
        has_waited = False
        while True:
            try:
                self._commands.send_bytes(_SAVING)
                unfinished = replies.get(timeout=_REPLY_S)
            except (OSError, queue.Empty):  # the child has exited, or hangs in code that keeps the GIL
                return None
            if unfinished is None:
                if has_waited:
                    self._has_exited_within(AFTER_SAVE_S)
                return None
            if not has_waited:
                log_wait(self._name, unfinished)
                has_waited = True
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return unfinished
            if self._has_exited_within(min(_POLL_INTERVAL_S, remaining_s)):
                return None

    def _has_exited_within(self, timeout_s: float) -> bool:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _drain(self, replies: queue.SimpleQueue[tuple[int, str] | None]) -> None:
        """Reads the messages of the child, and forwards its replies."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, value = pickle.loads(self._results.recv_bytes())  # noqa: S301 # from our own child
                if kind == "saving":
                    replies.put(value)
        replies.put(None)  # the child has exited: ends a wait for its reply

    def _exit_error(self) -> FunctionError:
        code = self._process.wait()
        self._kill()
        self._close()
        exit_code = code if code >= 0 else 128 - code
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return FunctionError(
            f"the process of {self._name} {how} before the function had ended", exit_code=exit_code
        )

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _close(self) -> None:
        for pipe in (self._results, self._commands):
            with contextlib.suppress(OSError):
                pipe.close()


# ---- the child ----------------------------------------------------------------------------------------------


def main(commands_descriptor: int, results_descriptor: int) -> None:
    """Runs the child: receives the task, runs it, sends its messages."""
    pickler_class()  # imported before the function runs, which may change `sys.path` or modules
    commands = Connection(commands_descriptor, writable=False)
    results = Connection(results_descriptor, readable=False)
    for descriptor in (commands_descriptor, results_descriptor):
        os.set_inheritable(descriptor, False)
    try:
        task: Task = pickle.loads(commands.recv_bytes())  # noqa: S301 # from our own parent
        outbox = Outbox(task.ahead)
        session = TrainingSession(task, outbox)
    except BaseException as error:
        results.send_bytes(pickle.dumps(_last(Ended(error=error))))
        return
    writing = threading.Lock()  # both threads send messages, which must not be interleaved
    threading.Thread(target=_run_commands, args=(commands, outbox, session, results, writing), daemon=True).start()
    sender = threading.Thread(target=_send, args=(outbox, results, writing))
    sender.start()
    outbox.end(run_task(task, session))
    sender.join()


def _run_commands(
    commands: Connection,
    outbox: Outbox,
    session: TrainingSession,
    results: Connection,
    writing: threading.Lock,
) -> None:
    """Runs the parent's commands; when the parent is gone, kills this process and its children."""
    try:
        while True:
            command = commands.recv_bytes()
            if command == _NEXT:
                outbox.request()
            elif command == _SAVING:
                with writing:
                    results.send_bytes(pickle.dumps(("saving", session.wait_until_saved(0))))
            else:
                session.stop()
                outbox.close()
    except (EOFError, OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _send(outbox: Outbox, results: Connection, writing: threading.Lock) -> None:
    while True:
        message = outbox.take(None)
        if isinstance(message, Report):
            # `take` returned after the event was set, and an event cannot be pickled.
            content = pickle.dumps(("report", replace(message, saved=None)))
        elif message is not None:
            content = pickle.dumps(_last(message))
        else:
            continue
        with writing:
            results.send_bytes(content)
        if isinstance(message, Ended):
            return


def _last(message: Ended) -> tuple[str, Any]:
    error = message.error
    if error is None:
        try:
            return "value", (message.checkpoint, dumps(message.value))
        except Exception as problem:  # of any kind: pickling runs code of any class
            error = FunctionError(f"the value of the function cannot be sent to its parent: {problem}")
            error.__cause__ = problem
    return "error", (message.checkpoint, error_message(error, dumps))
