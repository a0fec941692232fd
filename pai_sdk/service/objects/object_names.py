"""The names OSS allows, and the order it lists them in."""

from __future__ import annotations

import re

from pai_sdk.service.objects.error_codes import fault

__all__ = ["RESERVED_BUCKETS", "check_bucket", "encode_key", "successor"]

# With path-style addresses the first segment is the bucket; the PAI API lives under this one, on the same port.
RESERVED_BUCKETS = frozenset({"api"})

_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_MAX_KEY_BYTES = 1023


def check_bucket(name: str) -> str:
    """The name itself.

    Raises:
        StorageError: `InvalidBucketName`.
    """
    if not _BUCKET.fullmatch(name):
        raise fault("InvalidBucketName", bucket=name)
    if name in RESERVED_BUCKETS:
        raise fault("InvalidBucketName", f"The bucket name {name!r} is reserved; choose another.", bucket=name)
    return name


def encode_key(key: str) -> bytes:
    """A key as the index holds it: its UTF-8 bytes, so that every database sorts it as OSS does.

    Raises:
        StorageError: `InvalidObjectName`.
    """
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise fault("InvalidObjectName") from error
    if not 1 <= len(encoded) <= _MAX_KEY_BYTES or encoded[:1] in (b"/", b"\\"):
        raise fault("InvalidObjectName")
    return encoded


def successor(prefix: bytes) -> bytes | None:
    """The first byte string behind all those that begin with `prefix`; None when nothing can follow.

    Example:
        >>> successor(b"logs/")
        b'logs0'
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
