"""Copies the outputs of a job into the object store, while it runs and at its end."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.errors import InvalidInputError, PaiError
from pai_sdk.execution.initial_outputs import Version, read_resumed, version_of
from pai_sdk.execution.output_links import mend_links
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.service.jobs.staging import HEADER_EXECUTABLE, own_uri
from pai_sdk.storage.uri import OssUri
from pai_sdk.storage.walk import list_folder

if TYPE_CHECKING:
    from pai_sdk.service.objects.store import ObjectStore

__all__ = ["LIVE_CHANNELS", "Publisher", "PublishingCancelled"]

logger = logging.getLogger(__name__)

LIVE_CHANNELS = frozenset({"checkpoints", "tensorboard"})
"""The channels that are brought over while the job runs; the others have their content when it has ended."""

_SHOWN_PROBLEMS = 5
_PIECE_BYTES = 1 << 20
_PATH_IN_JOB = "/ml/output"


class PublishingCancelled(Exception):
    """The service ends; the next one publishes the outputs again."""


class Publisher:
    """Publishes the outputs of one job. An unchanged file is not sent again.

    `_sent` has the version of each file that the store has: at first of the files that the job started with, then
    of each file that was sent. A version is taken before the file is read, so a file that changes while it is sent
    has another version afterwards, and is sent once more.

    `_lock` is held for a whole publication: the one at the end of the job waits for a live one under way, and then
    sends only what that has not.
    """

    def __init__(
        self,
        store: ObjectStore,
        sandbox: Sandbox,
        request: TrainingJobRequest,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_cancelled = is_cancelled
        self._store = store
        self._sandbox = sandbox
        self._request = request
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, str], Version] | None = None

    @property
    def has_live_channels(self) -> bool:
        """Whether there is something to publish while the job runs."""
        return any(channel.name in LIVE_CHANNELS for channel in self._request.output_channels)

    def publish(self, *, live_only: bool) -> str:
        """Send what is new.

        Args:
            live_only: only what is to be seen while the job runs.

        Returns:
            What could not be sent, and why; empty when all is there.

        Raises:
            PublishingCancelled: `is_cancelled`, asked between files and within large ones, said so.
        """
        problems: list[str] = []
        with self._lock:
            if self._sent is None:
                self._sent = read_resumed(self._sandbox)
            for channel in self._request.output_channels:
                if not live_only or channel.name in LIVE_CHANNELS:
                    problems += self._publish_channel(
                        channel.name, channel.output_uri, self._sent, live_only=live_only
                    )
        more = f"; and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else ""
        return "; ".join(problems[:_SHOWN_PROBLEMS]) + more

    def _publish_channel(
        self, name: str, output_uri: str | None, sent: dict[tuple[str, str], Version], *, live_only: bool
    ) -> list[str]:
        folder = self._sandbox.output_dir(name)
        target = own_uri(output_uri, f"output channel {name!r}").as_dir()
        if not live_only:
            mend_links(folder, f"{_PATH_IN_JOB}/{name}")
        try:
            listing = list_folder(folder)
        except InvalidInputError as error:
            return [f"{name}: {error}"]
        problems = [f"{name}: {problem.where} {problem.what}" for problem in listing.problems]
        for file in listing.files:
            self._check_cancelled()
            path = folder / file.path
            try:
                status = path.stat()
                version = version_of(status)
                if sent.get((name, file.path)) == version:
                    continue
                with _open_within(folder, path) as stream:
                    self._send(stream, target.join(file.path), _headers(status.st_mode))
                sent[name, file.path] = version
            except FileNotFoundError:
                continue  # the job has removed it since the listing
            except (OSError, PaiError) as error:
                problems.append(f"{name}: {file.path}: {error}")
        return problems

    def _send(self, stream: BinaryIO, uri: OssUri, headers: dict[str, str]) -> None:
        with self._store.writer() as writer:
            while piece := stream.read(_PIECE_BYTES):
                writer.write(piece)
                self._check_cancelled()
            self._store.finish(writer, uri.bucket, uri.key, headers=headers)

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise PublishingCancelled


def _headers(mode: int) -> dict[str, str]:
    """The metadata of the object, so that a download gives the same file."""
    return {HEADER_EXECUTABLE: "true"} if mode & stat.S_IXUSR else {}


def _open_within(folder: Path, path: Path) -> BinaryIO:
    """Open a file of the folder, and check what was opened: the job may put a link or a pipe there at any time.

    Raises:
        PermissionError: it leads elsewhere now.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe must not block
    try:
        opened, real = os.fstat(descriptor), path.resolve()
        is_inside = real.is_relative_to(folder.resolve()) and os.path.samestat(opened, real.lstat())
        if not is_inside or not stat.S_ISREG(opened.st_mode):
            raise PermissionError("it is no file of this folder any more")
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")
