"""Saves the outputs of jobs in the service's object store, periodically and after the job."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING

from pai_sdk._host.execution.base import JobFiles
from pai_sdk._host.execution.output_uploader import UPLOAD_INTERVAL_S, OutputUploader, UploadCancelled
from pai_sdk._service.jobs.staging import store_uri
from pai_sdk._service.odps.table_rights import is_table
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._wire.pai.request import TrainingJobRequest

if TYPE_CHECKING:
    from pai_sdk._service.oss.store import ObjectStore

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
            if not is_table(channel.output_uri)  # the job writes the table itself
        }
        super().__init__(files, targets, is_cancelled=is_cancelled, options={"workers": _WORKERS})
        self._store = store

    def _target(self, name: str, uri: str | None) -> BucketStore:
        folder = store_uri(uri, f"output channel {name!r}").as_dir()
        return BucketStore(self._store, folder, check_cancelled=self.check_cancelled)


class LiveOutputs:
    """Publishes the live outputs of one job, on a shared thread pool. Used by the scheduler's thread only."""

    def __init__(
        self,
        publisher: OutputUploader,
        threads: Executor,
        *,
        add_event: Callable[[str], None],
        log_error: Callable[[str, Exception], None],
    ) -> None:
        self._publisher = publisher
        self._threads = threads
        self._add_event = add_event
        self._log_error = log_error
        self._upload: Future[str] | None = None
        self._last_problems = ""
        self._next_at = time.monotonic() + UPLOAD_INTERVAL_S

    def poll(self) -> None:
        """Starts an upload if it is due; called often, and never blocks."""
        # At most one upload per job: a second one would copy the same files.
        if self._upload is not None and self._upload.done():
            done, self._upload = self._upload, None
            self._report_problems(done)
        is_due = time.monotonic() >= self._next_at and self._publisher.has_live_channels
        if is_due and self._upload is None:
            # From the start of the upload: a slow one does not delay the next one further.
            self._next_at = time.monotonic() + UPLOAD_INTERVAL_S
            self._upload = self._threads.submit(self._publisher.upload, live_only=True)

    def _report_problems(self, done: Future[str]) -> None:
        try:
            problems = done.result()
        except UploadCancelled:
            return
        except Exception as error:
            self._log_error("its live outputs cannot be saved now, and are tried again", error)
            return
        # One event per new problem, not one per interval.
        if problems and problems != self._last_problems:
            self._add_event(f"Not all outputs could be saved so far: {problems}")
        self._last_problems = problems
