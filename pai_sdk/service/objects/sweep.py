"""Makes room: blobs that belong to no object, and uploads that nobody goes on with."""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy import select

from pai_sdk.service.objects.blobs import SHARDS, BlobFolder
from pai_sdk.service.objects.database import Database, objects, parts
from pai_sdk.service.objects.multipart import MultipartUploads

__all__ = ["Sweeper"]

_log = logging.getLogger(__name__)
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 3600.0


class Sweeper:
    """Sweeps beside the work of the store: once over all blobs, and every hour over the unfinished uploads.

    Args:
        database: the index.
        blobs: the content. What is in it without a row, an earlier process wrote or replaced, and died.
        uploads: those that may lie unfinished.
        upload_life_s: how long an upload may lie without a new part.
    """

    def __init__(
        self, database: Database, blobs: BlobFolder, uploads: MultipartUploads, *, upload_life_s: float
    ) -> None:
        self._database, self._blobs, self._uploads = database, blobs, uploads
        self._upload_life_s = upload_life_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oss-sweep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what is left to sweep the next process will sweep."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        self._expire_uploads()
        self._sweep_blobs()
        pause_s = min(max(self._upload_life_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        while not self._closing.wait(pause_s):
            self._expire_uploads()

    def _expire_uploads(self) -> None:
        try:
            for upload in self._uploads.idle_since(time.time() - self._upload_life_s):
                if self._closing.is_set():
                    return
                if self._uploads.expire(upload, time.time() - self._upload_life_s):
                    _log.info("the upload %s was never finished, and is removed", upload.id)
        except Exception:
            # They only take room: the store works with them, and the next round tries again.
            _log.exception("the unfinished uploads could not be removed")

    def _sweep_blobs(self) -> None:
        try:
            for shard in SHARDS:
                if self._closing.is_set():
                    return
                self._sweep(shard)
            self._blobs.settle()
        except Exception:
            # Orphans only take room: the store works with them, and the next start tries again.
            _log.exception("the blobs without an object could not be removed")

    def _sweep(self, shard: str) -> None:
        orphans = set(self._blobs.old_names(shard))
        if not orphans:
            return
        with self._database.read() as connection:
            for column in (objects.c.blob, parts.c.blob):
                found = select(column).where(column >= shard, column < f"{shard}g")
                orphans.difference_update(connection.execute(found).scalars())
        if orphans:
            _log.info("removing %d blobs that belong to no object", len(orphans))
            self._blobs.remove(orphans)
