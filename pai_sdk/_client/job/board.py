"""Starts TensorBoard on the events of a job.

A local folder is opened in place. A folder of an object store is copied into a temporary folder, and a thread
copies new events every few seconds until the board is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from html import escape
from pathlib import Path
from types import TracebackType
from typing import IO

from pai_sdk._data.storage.store import Store
from pai_sdk._data.storage.stores.local import LocalStore, path_of_file_uri
from pai_sdk.errors import MissingExtraError, ObjectNotFoundError, PaiError, ServiceStartError

_URL = re.compile(r"http://\S+")
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 5.0
_COPY_INTERVAL_S = 10.0

logger = logging.getLogger(__name__)


def open_board(uri: str, open_store: Callable[[str], Store], *, port: int = 0) -> Board:
    """Starts TensorBoard on a folder; port 0 is any free port."""
    if uri.startswith("file:"):
        return Board(Path(path_of_file_uri(uri)), port=port)

    def copy(folder: Path) -> None:
        from pai_sdk._data.storage.sync.dir_sync import DirSync

        with contextlib.suppress(ObjectNotFoundError):  # nothing is reported yet
            # `remember` is beside the folder: TensorBoard reads everything in it.
            DirSync(open_store(uri), LocalStore(folder), remember=folder.with_name("moved.db")).run()

    return Board(None, copy, port=port)


class Board:
    """A running TensorBoard at `url`. Use it as a context manager, or call `close`; it ends with this process.

    Without `folder` a temporary folder is used, which `copy` fills with new events. Port 0 is any free port.
    Raises MissingExtraError without TensorBoard, and ServiceStartError, with the end of its output, if it fails.
    """

    def __init__(
        self, folder: Path | None, copy: Callable[[Path], None] = lambda folder: None, *, port: int = 0
    ) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise MissingExtraError(
                "TensorBoard is not installed; run: pip install tensorboard", extra="tensorboard"
            )
        self._stack = contextlib.ExitStack()
        self._closed = threading.Event()
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)  # a failed start must leave neither a process nor a folder behind
            if folder is None:
                log_dir = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="pai-board-")), "logs")
                log_dir.mkdir()
                copy(log_dir)  # before the start, so that the first page already shows data
                copier = threading.Thread(target=self._copy_periodically, args=(copy, log_dir), daemon=True)
                copier.start()
                # Before the removal of the folder: the stack is unwound in reverse order.
                self._stack.callback(copier.join, _STOP_TIMEOUT_S)
                folder = log_dir
            self._program, self.url = self._start(folder, port)
            undo.pop_all()
        atexit.register(self.close)  # otherwise the program outlives this process

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Board {self.url}>"

    def _repr_html_(self) -> str:
        return f'TensorBoard: <a href="{escape(self.url)}" target="_blank">{escape(self.url)}</a>'

    def wait(self) -> None:
        """Waits until the program exits or the board is closed."""
        self._program.wait()

    def close(self) -> None:
        """Stops the program and removes the temporary folder. Closing again does nothing."""
        atexit.unregister(self.close)  # which keeps the board alive
        self._closed.set()  # first: the stack joins the copier, which waits for this event
        self._stack.close()

    def _start(self, folder: Path, port: int) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--host", "127.0.0.1"]
        program = subprocess.Popen(
            [*command, "--port", str(port), "--reload_interval", "5"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        urls: list[str] = []
        is_decided, last_lines = threading.Event(), list[str]()
        reader = threading.Thread(target=_read, args=(program.stderr, last_lines, urls, is_decided), daemon=True)
        self._stack.callback(_terminate, program, reader)
        reader.start()
        is_decided.wait(_START_TIMEOUT_S)
        if not urls:
            output = "".join(last_lines[-5:]).strip() or "nothing"
            raise ServiceStartError(f"TensorBoard did not start; its output: {output}")
        return program, urls[0]

    def _copy_periodically(self, copy: Callable[[Path], None], folder: Path) -> None:
        while not self._closed.wait(_COPY_INTERVAL_S):
            try:
                copy(folder)
            except PaiError as error:
                logger.warning(
                    "TensorBoard shows an older state, because the copy of the events failed: %s", error
                )


def _read(stream: IO[str] | None, last_lines: list[str], urls: list[str], is_decided: threading.Event) -> None:
    """Reads the output to its end; the first URL in it is the address of the board."""
    # To the end, also after the URL: a full pipe would block the program.
    for line in stream or ():
        last_lines[:] = [*last_lines[-20:], line]
        if not urls and (url := _URL.search(line)):
            urls.append(url[0])
            is_decided.set()
    is_decided.set()  # the program exited: `_start` need not wait for its timeout


def _terminate(program: subprocess.Popen[str], reader: threading.Thread) -> None:
    """Ends the program and the thread that reads its output."""
    program.terminate()
    try:
        program.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
    # Only now: the output ends with the program. Before `close`, which a thread that still reads would block.
    if reader.is_alive():
        reader.join(_STOP_TIMEOUT_S)
    if program.stderr is not None:
        program.stderr.close()
