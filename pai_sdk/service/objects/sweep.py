"""Removes the blobs that belong to no object: an earlier process wrote or replaced them, and died."""

from __future__ import annotations

import logging
import threading

from sqlalchemy import select

from pai_sdk.service.objects.blobs import SHARDS, BlobFolder
from pai_sdk.service.objects.database import Database, objects, parts

__all__ = ["Sweeper"]

_log = logging.getLogger(__name__)


class Sweeper:
    """Goes over all blobs once, beside the work of the store, and ends."""

    def __init__(self, database: Database, blobs: BlobFolder) -> None:
        self._database, self._blobs = database, blobs
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oss-sweep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what is left to sweep the next process will sweep."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
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
