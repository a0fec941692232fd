"""The hash that identifies the content of a file: SHA-256 for a small one, BLAKE3 for a larger one."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from pai_sdk._data.storage.crc64 import checksum_of
from pai_sdk.errors import FileChangedError

_log = logging.getLogger(__name__)

SHA256 = "sha256"
BLAKE3 = "blake3"

# Part of the names of folders, so it stays. Below it, SHA-256 takes no longer than opening the file, on processors
# with instructions for it less than BLAKE3 up to 10 kB, and the folders of code are named as by all releases.
SMALL_BYTES = 1 << 16


class ContentHash(NamedTuple):
    """What one reading of a file has found."""

    size_bytes: int
    digests: Sequence[str]  # `<algorithm>:<hexadecimal>`, one for each requested algorithm
    crc64: int | None  # see `checksum_of`; None unless requested


@cache
def has_blake3() -> bool:
    """Returns True if this machine can compute it; if not, SHA-256 takes its place, and it is logged once."""
    try:
        import blake3  # noqa: F401
    except ImportError as error:
        _log.warning("content is identified by SHA-256, which is slower: %s", error)
        return False
    return True


def algorithm_for(size_bytes: int) -> str:
    """Returns the algorithm that identifies the content of a file of this size."""
    return BLAKE3 if size_bytes > SMALL_BYTES and has_blake3() else SHA256


def algorithm_of(digest: str) -> str:
    """Returns the algorithm of a tagged digest."""
    return digest.partition(":")[0]


def hexadecimal(digest: str) -> str:
    """Returns a tagged digest without its algorithm."""
    return digest.partition(":")[2]


def hash_file(
    path: str | Path,
    algorithms: Sequence[str],
    buffer: memoryview,
    is_stopped: Callable[[], bool] = lambda: False,
    *,
    with_crc64: bool = False,
) -> ContentHash:
    """Hashes a file by each algorithm, in one reading through a buffer, whose chunks stay in the cache."""
    contents = [_NEW_HASH[algorithm]() for algorithm in algorithms]
    size_bytes, crc64 = 0, 0 if with_crc64 else None
    with FileIO(path) as stream:
        # When the caller is interrupted, the result is not used: the end of a large file is not waited for.
        while not is_stopped() and (read := stream.readinto(buffer)):
            chunk = buffer[:read]
            for content in contents:
                content.update(chunk)
            if crc64 is not None:
                crc64 = checksum_of(chunk, crc64)
            size_bytes += read
    digests = [f"{name}:{content.hexdigest()}" for name, content in zip(algorithms, contents, strict=True)]
    return ContentHash(size_bytes, digests, crc64)


def sha256_of_file(path: Path, digest: str, is_stopped: Callable[[], bool]) -> str:
    """Returns the tagged SHA-256 of a file that must have a digest, which may be of another algorithm."""
    if algorithm_of(digest) == SHA256:
        return digest
    hashed = hash_file(path, (SHA256, algorithm_of(digest)), memoryview(bytearray(1 << 20)), is_stopped)
    if hashed.digests[1] != digest:
        raise FileChangedError(f"{path} was changed after it was read; run this again")
    return hashed.digests[0]


def _new_blake3() -> Any:
    from blake3 import blake3

    return blake3()


_NEW_HASH: Mapping[str, Callable[[], Any]] = {SHA256: hashlib.sha256, BLAKE3: _new_blake3}
