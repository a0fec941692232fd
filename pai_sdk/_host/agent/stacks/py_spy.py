"""Reads the Python stacks of a process by py-spy, a program that needs nothing in the process and in its image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NOT_INSTALLED = "py-spy is missing where the service runs: pip install py-spy there"

# Of all calls of this process: each call reads another process with all the speed that a core has.
_SLOTS = threading.BoundedSemaphore(2 * (os.cpu_count() or 1))
_MAX_CALL_S = 10.0
_MAX_CALLS = 3  # a stack that moves while it is read cannot be read
_MAX_THREADS = 256
# A recursion without an end has thousands of frames; both ends of it matter.
_MAX_OUTER_FRAMES, _MAX_INNER_FRAMES = 20, 180
_MAX_TEXT = 400
_FINAL = re.compile(r"permission denied|operation not permitted|failed to find python|not a python", re.IGNORECASE)


def find_py_spy() -> str:
    """Returns the path of py-spy in the environment of this Python or on PATH; empty without one."""
    beside = Path(sys.executable).parent / "py-spy"
    if os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which("py-spy") or _installed_program()


def _installed_program() -> str:
    """Returns the program of an installation in another scheme, such as that of `pip install --user`."""
    from importlib import metadata  # for weight

    try:
        files = metadata.distribution("py-spy").files or ()
    except metadata.PackageNotFoundError:
        return ""
    programs = (str(Path(str(file.locate())).resolve()) for file in files if file.name == "py-spy")
    return next((program for program in programs if os.access(program, os.X_OK)), "")


class StackError(Exception):
    """The stack of a process cannot be read; the message is for users."""


def read_threads(
    program: str, pid: int, *, native: bool, is_stopped: bool, deadline: float
) -> list[dict[str, Any]]:
    """Returns the stacks of the threads of a Python process, the main thread first.

    The process is not paused, unless native frames are requested or its stack moves too fast.

    Args:
        program: path of py-spy.
        pid: the process.
        native: read the frames of compiled libraries, too; this pauses the process for some 40 ms.
        is_stopped: the process is stopped by a signal; it is never paused then, as that would wait for it.
        deadline: by `time.monotonic()`.

    Raises:
        StackError: with the reason.
    """
    error = StackError("there was no time left to read it")
    for number in range(_MAX_CALLS):
        if is_stopped:
            options = ["--nonblocking"]
        elif native:
            options = ["--native"]
        else:
            options = ["--nonblocking"] if number < _MAX_CALLS - 1 else []
        try:
            return _threads(_call(program, pid, options, deadline), pid)
        except StackError as failure:
            error = failure
            if _FINAL.search(str(failure)) or time.monotonic() >= deadline:
                break
    raise error


def _call(program: str, pid: int, options: Sequence[str], deadline: float) -> str:
    if not _SLOTS.acquire(timeout=max(0.0, deadline - time.monotonic())):
        raise StackError("there was no time left to read it")
    try:
        result = subprocess.run(
            [program, "dump", "--json", "--full-filenames", *options, "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
            timeout=max(0.1, min(_MAX_CALL_S, deadline - time.monotonic())),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StackError("py-spy did not finish in time") from None
    except OSError as error:
        raise StackError(f"{program}: {error.strerror or error}") from error
    finally:
        _SLOTS.release()
    if result.returncode != 0:
        raise StackError(_reason(result.stderr.decode(errors="replace")))
    return result.stdout.decode(errors="replace")


def _reason(text: str) -> str:
    """Returns the message of py-spy and its cause, without the backtrace of the program."""
    lines = [line.strip() for line in text.partition("Stack backtrace")[0].splitlines() if line.strip()]
    lines = [re.sub(r"^\d+: ", "", line).removeprefix("Error: ") for line in lines]
    parts = list(dict.fromkeys(line for line in lines if not line.startswith(("Caused by", "Reason:"))))
    return f"py-spy: {'; '.join(parts) or 'failed'}"[:_MAX_TEXT]


def _threads(text: str, pid: int) -> list[dict[str, Any]]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise StackError(f"py-spy: {error}") from error
    threads = [_thread(each) for each in content[:_MAX_THREADS]] if isinstance(content, list) else []
    if not threads:
        raise StackError("py-spy: no threads")
    # A thread has the id of its process if it is the main one; in a container, py-spy reports the id there.
    return sorted(threads, key=lambda thread: thread["id"] != pid and thread["name"] != "MainThread")


def _thread(entry: Mapping[str, Any]) -> dict[str, Any]:
    frames = [_frame(frame) for frame in reversed(entry.get("frames") or ())]
    if len(frames) > _MAX_OUTER_FRAMES + _MAX_INNER_FRAMES:
        omitted = len(frames) - _MAX_OUTER_FRAMES - _MAX_INNER_FRAMES
        gap = {"function": f"… {omitted} frames …", "file": "", "line": 0}
        frames = [*frames[:_MAX_OUTER_FRAMES], gap, *frames[-_MAX_INNER_FRAMES:]]
    return {
        "id": entry.get("os_thread_id") or entry.get("thread_id") or 0,
        "name": str(entry.get("thread_name") or "")[:_MAX_TEXT],
        "is_active": bool(entry.get("active")),
        "has_gil": bool(entry.get("owns_gil")),
        "frames": frames,
    }


def _frame(entry: Mapping[str, Any]) -> dict[str, Any]:
    file = str(entry.get("filename") or entry.get("module") or "")
    return {
        "function": str(entry.get("name") or "?")[:_MAX_TEXT],
        "file": file[-_MAX_TEXT:],
        "line": entry.get("line") or 0,
    }
