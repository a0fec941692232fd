"""Reconciles index and disk: blobs without an object, objects without a blob, idle uploads."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from pai_sdk._service.oss.blobs import SHARDS, BlobFolder
from pai_sdk._service.oss.index import ObjectIndex
from pai_sdk._service.oss.multipart import MultipartUploads
from pai_sdk._service.oss.object_rows import StoredObject
from pai_sdk._service.periodic_task import PeriodicTask

_log = logging.getLogger(__name__)
_MIN_PAUSE_S, _MAX_PAUSE_S = 1.0, 3600.0
_DAY_S = 24 * 3600.0


class Sweeper:
    """Sweeps in a thread: all blobs once after the start, and the unfinished uploads every hour."""

    def __init__(
        self, index: ObjectIndex, blobs: BlobFolder, uploads: MultipartUploads, *, upload_life_s: float
    ) -> None:
        self._index, self._blobs, self._uploads = index, blobs, uploads
        self._upload_life_s = upload_life_s
        self._has_logged_missing_folder = False
        self._swept_at: float | None = None
        pause_s = min(max(self._upload_life_s, _MIN_PAUSE_S), _MAX_PAUSE_S)
        self.task = PeriodicTask("oss-sweep", pause_s, self._run)
        self.task.start()

    def _run(self) -> None:
        self._expire_uploads()
        if self._swept_at is None:
            self._sweep_blobs()
        # Daily, because only external contents that are a day old may be deleted.
        elif time.monotonic() - self._swept_at >= _DAY_S:
            self._sweep_shards(self._blobs.external_shards)
        else:
            return
        self._swept_at = time.monotonic()

    def _expire_uploads(self) -> None:
        try:
            for upload in self._uploads.idle_since(time.time() - self._upload_life_s):
                if self.task.closing.is_set():
                    return
                if self._uploads.expire(upload, time.time() - self._upload_life_s):
                    _log.info("the upload %s was never finished, and is removed", upload.id)
        except Exception:
            # Unfinished uploads only use disk space; the next round tries again.
            _log.exception("the unfinished uploads could not be removed")

    def _sweep_blobs(self) -> None:
        if self._sweep_shards(SHARDS):
            self._blobs.forget_new_names()
        self._sweep_shards(self._blobs.external_shards)

    def _sweep_shards(self, shards: Sequence[str]) -> bool:
        """Sweeps shards; returns whether all of them were swept."""
        try:
            for shard in shards:
                if self.task.closing.is_set():
                    return False
                self._sweep(shard)
            return True
        except Exception:
            # Orphans only use disk space; the next start tries again.
            _log.exception("the blobs without an object could not be removed")
            return False

    def _sweep(self, shard: str) -> None:
        sizes = self._blobs.sizes(shard)
        # Rows are read after the files: a blob missing in `sizes` may be new, so `_is_lost` checks it again.
        infos, parts = self._index.of_blobs(shard), self._uploads.of_blobs(shard)
        referenced = {info.blob for info in infos} | {each.part.blob for each in parts}
        # Left by an earlier process. New names are excluded: their rows may be committed at this moment.
        if orphans := self._blobs.old_names(sizes.keys() - referenced):
            _log.info("removing %d blobs that belong to no object", len(orphans))
            self._blobs.remove(orphans)
        # A blob that is missing or too short was lost by a disk error.
        for info in infos:
            if self._is_lost(info.blob, info.size_bytes, sizes):
                self._drop(info)
        for each in parts:
            if (
                self._is_lost(each.part.blob, each.part.start + each.part.size_bytes, sizes)
                and not self._blobs.was_missing
            ):
                self._uploads.forget_lost(each)

    def _is_lost(self, blob: str, size_bytes: int, sizes: Mapping[str, int]) -> bool:
        return sizes.get(blob, -1) < size_bytes and self._blobs.size_of(blob) < size_bytes

    def _drop(self, info: StoredObject) -> None:
        if self._blobs.was_missing:
            if not self._has_logged_missing_folder:
                self._has_logged_missing_folder = True
                _log.error(
                    "the folder of blobs is empty, but the index has objects; nothing is dropped. "
                    "Is a disk not mounted? The first such object is oss://%s/%s",
                    info.bucket,
                    info.key,
                )
        elif self._index.forget_lost(info):
            _log.error("the content of oss://%s/%s was lost on the disk; it is dropped", info.bucket, info.key)
