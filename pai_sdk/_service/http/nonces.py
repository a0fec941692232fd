"""The nonces of the requests that were accepted, so that none is accepted twice, not even after a restart."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from pai_sdk._core.files import replace_file

logger = logging.getLogger(__name__)

_RECORD = struct.Struct("<I12s")  # minute of the request's date, digest of its nonce
_MINUTE_S = 60
_FLOOR = b"\0" * 12  # in place of a digest: requests up to the end of that minute are refused
_PAUSE_AFTER_ERROR_S = 10.0
_SPARE_RECORDS = 4096  # expired records in the file before it is rewritten


class NonceMemory:
    """Stores each nonce as long as its request's date would be accepted, up to a maximum number.

    Beyond the maximum, the nonces of the earliest minute are dropped; from then on, requests dated in it or before
    are refused, since they could be replays. With a file, the nonces survive the process. Records are written
    without fsync: a killed process loses none, a power failure may lose the last ones.

    A clock that is set forward and back again allows no replay: a nonce is dropped only if its date is too old and
    it was retained for its lifetime by the monotonic clock.
    """

    def __init__(
        self,
        *,
        lifetime_s: float,
        path: Path | None = None,
        max_nonces: int = 300_000,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lifetime_s = lifetime_s  # how long before and after its date a request is accepted
        self._elapsed_s = elapsed_s
        self._path = path  # None: in memory only
        self._max_nonces = max_nonces
        self._nonces: defaultdict[int, set[bytes]] = defaultdict(set)
        self._retained_until_s: defaultdict[int, float] = defaultdict(float)  # monotonic time
        self._count = 0
        self._floor = -1
        self._records = 0
        self._write_again_at_s = 0.0
        self._lock = threading.Lock()
        self._file = self._open(path) if path is not None else None

    def accept(self, nonce: str, *, dated: float, now: float) -> bool:
        """Stores a nonce; returns False if it was stored before, or may have been dropped since."""
        digest = hashlib.blake2b(nonce.encode(errors="surrogateescape"), digest_size=12).digest()
        minute = max(0, int(dated // _MINUTE_S))
        with self._lock:
            self._forget(now)
            if minute <= self._floor or digest in self._nonces.get(minute, ()):
                return False
            self._add(minute, digest, counts_s=dated - now + self._lifetime_s)
            self._write(_RECORD.pack(minute, digest))
            if self._count > self._max_nonces:
                self._raise_floor(min(self._nonces))
            return True

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._close()

    def _add(self, minute: int, digest: bytes, *, counts_s: float) -> None:
        self._retained_until_s[minute] = max(self._retained_until_s[minute], self._elapsed_s() + counts_s)
        if digest not in self._nonces[minute]:
            self._nonces[minute].add(digest)
            self._count += 1

    def _forget(self, now: float) -> None:
        first_valid, elapsed_s = int((now - self._lifetime_s) // _MINUTE_S), self._elapsed_s()
        for minute in [minute for minute in self._nonces if minute < first_valid]:
            if self._retained_until_s[minute] < elapsed_s:
                self._drop(minute)

    def _drop(self, minute: int) -> None:
        del self._retained_until_s[minute]
        self._count -= len(self._nonces.pop(minute))

    def _raise_floor(self, minute: int) -> None:
        self._floor = max(self._floor, minute)
        for old in [old for old in self._nonces if old <= self._floor]:
            self._drop(old)
        self._write(_RECORD.pack(self._floor, _FLOOR))
        logger.warning("more than %d requests within minutes: those dated earlier are refused", self._max_nonces)

    # ---- the file -----------------------------------------------------------------------------------------

    def _open(self, path: Path) -> BinaryIO:
        content = path.read_bytes() if path.exists() else b""
        # The last record may be incomplete: then its request received no response.
        for minute, digest in _RECORD.iter_unpack(content[: len(content) // _RECORD.size * _RECORD.size]):
            if digest == _FLOOR:
                self._floor = max(self._floor, minute)
            else:
                # The maximum: the file does not record when the nonce was accepted.
                self._add(minute, digest, counts_s=2 * self._lifetime_s)
        return self._rewritten(path)

    def _write(self, record: bytes) -> None:
        if self._path is None or self._elapsed_s() < self._write_again_at_s:
            return
        try:
            if self._file is not None and self._records <= 2 * self._count + _SPARE_RECORDS:
                self._records += 1
                if self._file.write(record) != len(record):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return
            self._close()
            self._file = self._rewritten(self._path)
        except OSError as error:  # such as a full disk: this process has them in memory, and writes them all later
            logger.warning("nonces cannot be written to %s: %s", self._path, error.strerror)
            self._close()
            self._write_again_at_s = self._elapsed_s() + _PAUSE_AFTER_ERROR_S

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rewritten(self, path: Path) -> BinaryIO:
        records = [(minute, digest) for minute, digests in self._nonces.items() for digest in digests]
        if self._floor >= 0:
            records.append((self._floor, _FLOOR))
        content = b"".join(_RECORD.pack(*record) for record in records)
        replace_file(path, content, draft=path.with_name(f".{path.name}.partial"))
        self._records = len(records)
        return path.open("ab", buffering=0)
