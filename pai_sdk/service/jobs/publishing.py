"""Sends the outputs of a job into the service's own object store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.execution.output_uploader import OutputUploader
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.service.jobs.staging import own_uri
from pai_sdk.service.objects.bucket_store import BucketStore
from pai_sdk.service.tables.table_rights import is_table

if TYPE_CHECKING:
    from pai_sdk.service.objects.store import ObjectStore

__all__ = ["Publisher"]

_WORKERS = 16


class Publisher(OutputUploader):
    """The uploader of a job of the service."""

    def __init__(
        self,
        store: ObjectStore,
        sandbox: Sandbox,
        request: TrainingJobRequest,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        targets = {
            channel.name: partial(self._target, channel.name, channel.output_uri)
            for channel in request.output_channels
            if not is_table(channel.output_uri)  # the job writes it itself
        }
        super().__init__(sandbox, targets, is_cancelled=is_cancelled, options={"workers": _WORKERS})
        self._store = store

    def _target(self, name: str, uri: str | None) -> BucketStore:
        folder = own_uri(uri, f"output channel {name!r}").as_dir()
        return BucketStore(self._store, folder, check_cancelled=self.check_cancelled)
