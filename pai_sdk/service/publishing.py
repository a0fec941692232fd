"""Bringing what a job writes to where its output channels go, while it runs and at its end."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from pai_sdk.errors import InvalidInputError, PaiError
from pai_sdk.execution.sandbox import Sandbox
from pai_sdk.job.request import TrainingJobRequest
from pai_sdk.service.staging import own_uri
from pai_sdk.storage.walk import list_folder

if TYPE_CHECKING:
    from pai_sdk.service.objects.store import ObjectStore

__all__ = ["LIVE_CHANNELS", "Publisher"]

logger = logging.getLogger(__name__)

LIVE_CHANNELS = frozenset({"checkpoints", "tensorboard"})
"""The channels that are brought over while the job runs; the others have their content when it has ended."""

_SHOWN_PROBLEMS = 5


class Publisher:
    """Publishes the outputs of one job. A file that has not changed since the last time is not sent again."""

    def __init__(self, store: ObjectStore, sandbox: Sandbox, request: TrainingJobRequest) -> None:
        self._store = store
        self._sandbox = sandbox
        self._request = request
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, str], tuple[int, int]] = {}

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
        """
        problems: list[str] = []
        with self._lock:
            for channel in self._request.output_channels:
                if not live_only or channel.name in LIVE_CHANNELS:
                    problems += self._publish_channel(channel.name, channel.output_uri)
        more = f"; and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else ""
        return "; ".join(problems[:_SHOWN_PROBLEMS]) + more

    def _publish_channel(self, name: str, output_uri: str | None) -> list[str]:
        folder = self._sandbox.output_dir(name)
        target = own_uri(output_uri, f"output channel {name!r}").as_dir()
        try:
            listing = list_folder(folder)
        except InvalidInputError as error:
            return [f"{name}: {error}"]
        problems = [f"{name}: {problem.where} {problem.what}" for problem in listing.problems]
        for file in listing.files:
            path = folder / file.path
            try:
                status = path.stat()
                version = (status.st_mtime_ns, status.st_size)
                if self._sent.get((name, file.path)) == version:
                    continue
                uri = target.join(file.path)
                self._store.put_file(uri.bucket, uri.key, path)
                self._sent[name, file.path] = version
            except FileNotFoundError:
                continue  # the job has removed it since we looked
            except (OSError, PaiError) as error:
                problems.append(f"{name}: {file.path}: {error}")
        return problems
