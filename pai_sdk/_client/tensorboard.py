"""TensorBoard on any folder of events, as a program on this machine."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._client.job.board import open_board
from pai_sdk._core.names.hints import wrong_type
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.storage.store import open_store
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._wire.pai.arguments import seconds_or_none
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.job.board import Board
    from pai_sdk._client.session import Session

__all__ = ["TensorBoard", "TensorBoardStatus"]


class TensorBoardStatus:
    """The statuses of a TensorBoard."""

    Pending = "Pending"
    Creating = "Creating"
    Running = "Running"
    Creating_Failed = "Creating_Failed"
    Deleting = "Deleting"
    Deleted = "Deleted"
    Stopping = "Stopping"
    Stopped = "Stopped"

    @classmethod
    def is_terminated(cls, status: str) -> bool:
        """True after its end."""
        return status in (cls.Creating_Failed, cls.Stopped, cls.Deleted)

    @classmethod
    def is_running(cls, status: str) -> bool:
        """True where it can be opened."""
        return status == cls.Running


@short_tracebacks
class TensorBoard:
    """TensorBoard on a folder; `create` starts it. It runs until `stop`, `delete`, or the exit of this process.

    It is the real program, on this machine. A folder in an object store is copied to a temporary folder, and new
    events every few seconds. It is thread-safe.

    Attributes:
        tensorboard_id: its name in messages.
        summary_uri: the folder.
        display_name: a name for people.

    Example:
        >>> with TensorBoard.create("oss://models/logs/") as board:  # doctest: +SKIP
        ...     print(board.app_uri)
        http://localhost:43211/
    """

    def __init__(
        self, summary_uri: str, *, display_name: str | None = None, session: Session | None = None
    ) -> None:
        if not isinstance(summary_uri, str):
            raise InvalidInputError([wrong_type("uri", summary_uri, "a string")])
        self.summary_uri = summary_uri
        self.display_name = display_name or summary_uri.rstrip("/").rpartition("/")[2]
        self.tensorboard_id = self.display_name
        self._session = session
        # Held while the program starts or stops: the timer's thread must not miss a board that is starting.
        self._lock = threading.Lock()
        self._board: Board | None = None
        self._timer: threading.Timer | None = None
        self._is_deleted = False

    @classmethod
    @checks_keywords
    def create(
        cls,
        uri: str,
        wait: bool = True,
        display_name: str | None = None,
        max_runtime_in_minutes: float | None = None,
        session: Session | None = None,
    ) -> TensorBoard:
        """Start TensorBoard on a folder.

        Args:
            uri: the folder with event files: `oss://…`, a local path, or any URI that `open_store` reads.
            wait: it listens when this returns, also with False.
            display_name: a name for people; the last part of the URI otherwise.
            max_runtime_in_minutes: stop it after so long; never by default.
            session: whose keys are used for `oss://`; the default session otherwise.

        Raises:
            InvalidInputError: the URI cannot be read.
            MissingExtraError: TensorBoard is not installed; `pip install tensorboard`.
            ServiceStartError: it did not start; the message has the end of its output.
        """
        minutes = seconds_or_none(max_runtime_in_minutes, "max_runtime_in_minutes", unit="minutes")
        board = cls(uri, display_name=display_name, session=session)
        board.start()
        if minutes is not None:
            board._timer = threading.Timer(minutes * 60, board.stop)
            board._timer.daemon = True  # it must not keep the process alive
            board._timer.start()
        return board

    @property
    def status(self) -> str:
        """One of `TensorBoardStatus`."""
        with self._lock:
            if self._is_deleted:
                return TensorBoardStatus.Deleted
            return TensorBoardStatus.Stopped if self._board is None else TensorBoardStatus.Running

    @property
    def app_uri(self) -> str | None:
        """The URL for a browser; None when it does not run."""
        with self._lock:
            return None if self._board is None else self._board.url

    def start(self, wait: bool = True) -> None:
        """Start it again; one that runs is left alone.

        Args:
            wait: it listens when this returns, also with False.

        Raises:
            InvalidInputError: it was deleted.
            MissingExtraError: TensorBoard is not installed.
            ServiceStartError: it did not start.
        """
        with self._lock:
            if self._is_deleted:
                message = f"the TensorBoard {self.display_name!r} was deleted"
                raise InvalidInputError(
                    [Problem("tensorboard", message, "make another one: TensorBoard.create(uri)")]
                )
            if self._board is None:
                is_uri = uri_scheme(self.summary_uri) is not None or self.summary_uri.startswith("file:")
                uri = self.summary_uri if is_uri else Path(self.summary_uri).expanduser().absolute().as_uri()
                self._board = open_board(uri, lambda uri: open_store(uri, self._session))

    def wait(self) -> None:
        """Return immediately: it listens since its start."""

    def stop(self) -> None:
        """Stop the program. Stopping again does nothing."""
        with self._lock:
            self._close()

    def delete(self) -> None:
        """Stop the program; it cannot be started again."""
        with self._lock:
            self._close()
            self._is_deleted = True

    def _close(self) -> None:
        # Called with `_lock` held.
        if self._timer is not None:
            self._timer.cancel()
        if self._board is not None:
            self._board.close()
            self._board = None

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()

    def __repr__(self) -> str:
        return f"<TensorBoard {self.display_name} {self.status} {self.app_uri or ''}>".replace(" >", ">")

    def _repr_html_(self) -> str:
        with self._lock:
            return "TensorBoard: stopped" if self._board is None else self._board._repr_html_()
