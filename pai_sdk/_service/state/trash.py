"""Removes folders of deleted jobs in the background."""

from __future__ import annotations

import logging
import queue
import shutil
import threading
import uuid
from pathlib import Path

from pai_sdk._host.agent.sandbox import TRASH_PREFIX

logger = logging.getLogger(__name__)


class Trash:
    """Deletes folders in the background; those left at the end are deleted after the next start."""

    def __init__(self, parent: Path, *, max_close_s: float = 2.0) -> None:
        self._max_close_s = max_close_s
        self._parent = parent
        self._closing = threading.Event()
        self._folders: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        # Left by an earlier process, which was killed or closed before it had deleted them.
        for folder in parent.glob(f"{TRASH_PREFIX}*"):
            self._folders.put(folder)
        self._thread = threading.Thread(target=self._run, name="trash", daemon=True)
        self._thread.start()

    def put(self, folder: Path) -> None:
        """Deletes a folder of the parent; its name can be used again at once."""
        if folder.name.startswith(TRASH_PREFIX):
            return  # __init__ has queued it
        target = self._parent / f"{TRASH_PREFIX}{uuid.uuid4().hex}"
        try:
            # A rename is atomic: after a crash the folder is either intact or in the trash, never half deleted.
            folder.rename(target)
        except FileNotFoundError:
            return
        self._folders.put(target)

    def close(self) -> None:
        """Stops after the folder that is being deleted, or after 2 s."""
        self._closing.set()
        self._folders.put(None)
        self._thread.join(self._max_close_s)
        if self._thread.is_alive():
            logger.info(
                "a deleted job's folder is large; the next start of the service deletes its remaining files"
            )

    # SimpleQueue.put() never blocks, so `put` can be called by the scheduler's thread.
    def _run(self) -> None:
        while (folder := self._folders.get()) is not None and not self._closing.is_set():
            shutil.rmtree(folder, onerror=self._log)

    @staticmethod
    def _log(function: object, path: str, error: object) -> None:
        logger.warning("%s cannot be removed", path)
