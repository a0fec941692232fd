"""Saves the outputs of jobs in the service's own object store, periodically and at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING

from pai_sdk.execution.base import JobFiles
from pai_sdk.execution.output_uploader import UPLOAD_INTERVAL_S, OutputUploader, UploadCancelled
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.service.jobs.staging import own_uri
from pai_sdk.service.objects.bucket_store import BucketStore
from pai_sdk.service.tables.table_rights import is_table

if TYPE_CHECKING:
    from pai_sdk.service.objects.store import ObjectStore

__all__ = ["LiveOutputs", "Publisher"]

_WORKERS = 16


class Publisher(OutputUploader):
    """The uploader of a job of the service."""

    def __init__(
        self,
        store: ObjectStore,
        files: JobFiles,
        request: TrainingJobRequest,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        targets = {
            channel.name: partial(self._target, channel.name, channel.output_uri)
            for channel in request.output_channels
            if not is_table(channel.output_uri)  # the job writes it itself
        }
        super().__init__(files, targets, is_cancelled=is_cancelled, options={"workers": _WORKERS})
        self._store = store

    def _target(self, name: str, uri: str | None) -> BucketStore:
        folder = own_uri(uri, f"output channel {name!r}").as_dir()
        return BucketStore(self._store, folder, check_cancelled=self.check_cancelled)


class LiveOutputs:
    """Publishes the live outputs of one job, on a shared thread pool. Used by the scheduler's thread only.

    Args:
        publisher: the job's.
        threads: where files are copied.
        note: adds an event to the job: its owner learns before the end what cannot be saved.
        tell: writes an error to the service's log.
    """

    def __init__(
        self,
        publisher: OutputUploader,
        threads: Executor,
        *,
        note: Callable[[str], None],
        tell: Callable[[str, Exception], None],
    ) -> None:
        self._publisher = publisher
        self._threads = threads
        self._note = note
        self._tell = tell
        self._at_work: Future[str] | None = None
        self._noted = ""
        self._next_at = time.monotonic() + UPLOAD_INTERVAL_S

    def look(self) -> None:
        """Start a publication when it is due; called often, and never blocks."""
        if self._at_work is not None and self._at_work.done():
            done, self._at_work = self._at_work, None
            self._tell_problems(done)
        is_due = time.monotonic() >= self._next_at and self._publisher.has_live_channels
        if is_due and self._at_work is None:
            self._next_at = time.monotonic() + UPLOAD_INTERVAL_S
            self._at_work = self._threads.submit(self._publisher.upload, live_only=True)

    def _tell_problems(self, done: Future[str]) -> None:
        try:
            problems = done.result()
        except UploadCancelled:
            return
        except Exception as error:
            self._tell("its live outputs cannot be saved now, and are tried again", error)
            return
        if problems and problems != self._noted:
            self._note(f"Not all outputs could be saved so far: {problems}")
        self._noted = problems
