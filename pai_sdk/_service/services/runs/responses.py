"""Responses about runs: JSON without NaN, CSV without formulas, columns; each with an ETag.

JSON has no NaN and no infinity. A list has null instead, and a second object has their indices: `"values": [1.5,
null], "nonfinite": {"nan": [1]}`.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from fastapi import Request, Response

from pai_sdk._service.services.budgets import Work

LIVE = {"Cache-Control": "private, no-cache"}
"""Headers of a response that can change at any time: clients revalidate it with its ETag."""

IMMUTABLE = {"Cache-Control": "private, max-age=31536000, immutable"}
"""Headers of a response that never changes."""

logger = logging.getLogger(__name__)

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GZIP_LEVEL = 1
_MIN_GZIPPED_BYTES = 1400  # a smaller response fits into one packet of 1,500 bytes anyway
_LOOPBACK = ("127.", "::1", "localhost")
_CACHED_BYTES = 8 << 20
_NUMBERS_PER_CHUNK = 8192
_ROWS_PER_CHUNK = 512
_ROWS_PER_CHECK = 1000
_PLAIN = (str, int, float, type(None))
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_response(value: Mapping[str, Any], headers: Mapping[str, str], work: Work | None = None) -> Response:
    """Returns an object as JSON; counts its bytes if the work of a request is passed."""
    content = json_bytes(value)
    if work is not None:
        work.spend(len(content))
    return Response(content, media_type="application/json", headers=dict(headers))


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Encodes an object as JSON; numbers must be finite (see `finite`)."""
    return b"".join(_json_chunks(value))


def json_list(
    name: str,
    items: Iterable[Mapping[str, Any] | bytes],
    extra: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    work: Work,
) -> bytes:
    """Encodes an object as JSON whose first key is a long list; `work` raises WireError beyond its budget."""
    parts = []
    for item in items:  # created one by one: `work` can stop before all are in memory; bytes are JSON already
        parts.append(item if isinstance(item, bytes) else json_bytes(item))
        work.spend(len(parts[-1]) + 1)
    # After the last item, such as a cursor behind it.
    extra = extra() if callable(extra) else extra
    end = json_bytes(extra)[1:]
    return b"".join([b"{", _dumped(name), b":[", b",".join(parts), b"]", b"," if extra else b"", end])


def _json_chunks(value: Any) -> Iterator[bytes]:
    # In chunks: the C encoder holds the GIL until it returns, about half a second for a million numbers.
    if isinstance(value, Mapping):
        yield from _object_chunks(value)
    elif isinstance(value, list) and value and _is_nested(value[0]):
        for at, item in enumerate(value):
            yield b"," if at else b"["
            yield from _json_chunks(item)
        yield b"]"
    elif isinstance(value, list) and value:
        length = _ROWS_PER_CHUNK if isinstance(value[0], dict) else _NUMBERS_PER_CHUNK
        for start in range(0, len(value), length):
            yield b"," if start else b"["
            yield _dumped(value[start : start + length])[1:-1]
        yield b"]"
    else:
        yield _dumped(value)


def _object_chunks(value: Mapping[Any, Any]) -> Iterator[bytes]:
    between, plain = b"{", dict[str, Any]()  # fields in a row that are encoded together
    for key, item in value.items():
        if isinstance(item, _PLAIN):
            plain[str(key)] = item
            continue
        if plain:
            yield between + _dumped(plain)[1:-1]
            between, plain = b",", {}
        yield b"%s%s:" % (between, _dumped(str(key)))
        between = b","
        yield from _json_chunks(item)
    if plain:
        yield between + _dumped(plain)[1:-1]
    yield b"}" if value else b"{}"


def _is_nested(value: Any) -> bool:
    """Returns True if a value may be large itself: a list, or an object with a list or object in it."""
    return isinstance(value, list) or (
        isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values())
    )


def _dumped(value: Any) -> bytes:
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        # Earlier releases accepted and stored such numbers.
        logger.warning("a number that is not finite is sent as null")
        text = _ENCODER.encode(_without_nan(value))
    return text.encode(errors="replace")  # a name in an event file may have a lone surrogate


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, (list, tuple)) else value


def tagged(request: Request, content: bytes, media_type: str, headers: Mapping[str, str]) -> Response:
    """Builds a response with a strong ETag: 304 if the client has it; compressed unless the client is local."""
    # 96 bits suffice to distinguish the versions of one URL.
    digest = hashlib.blake2b(content, digest_size=12).hexdigest()
    is_zipped = (
        len(content) >= _MIN_GZIPPED_BYTES
        # On the loopback interface compression costs more time than it saves.
        and not _is_on_this_host(request)
        and "gzip" in request.headers.get("accept-encoding", "")
    )
    # A strong ETag must differ for each encoding (RFC 9110, section 8.8.3.3).
    etag = f'"{digest}-gzip"' if is_zipped else f'"{digest}"'
    all_headers = {**headers, "ETag": etag, "Vary": "Accept, Accept-Encoding"}
    client_etags = [
        each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")
    ]
    if etag in client_etags:
        return Response(status_code=304, headers=all_headers)
    if is_zipped:
        all_headers["Content-Encoding"] = "gzip"
        content = gzip.compress(content, _GZIP_LEVEL, mtime=0)
    return Response(content, media_type=media_type, headers=all_headers)


def best_of(request: Request, offered: Sequence[str]) -> str:
    """Returns the first media type of `Accept` that is offered; the first offered one if there is none."""
    for part in request.headers.get("accept", "").split(","):
        media_type = part.partition(";")[0].strip().lower()
        if media_type in offered:
            return media_type
    return offered[0]


def finite(values: Iterable[float | None]) -> tuple[list[float | None], dict[str, list[int]]]:
    """Returns numbers for JSON with null for non-finite ones, and the indices of those by kind."""
    import numpy as np

    items = list(values)
    numbers = np.array([math.nan if value is None else value for value in items], np.float64)
    # Nine digits identify each number of single precision (IEEE 754), and save up to eight bytes.
    with np.errstate(over="ignore"):
        is_single = numbers.astype(np.float32).astype(np.float64) == numbers
    if np.isfinite(numbers).all():
        return [
            float(f"{value:.9g}") if short else value
            for value, short in zip(numbers.tolist(), is_single.tolist(), strict=True)
        ], {}
    numbers_or_none: list[float | None] = []
    nonfinite: dict[str, list[int]] = {}
    for at, (value, short) in enumerate(zip(items, is_single.tolist(), strict=True)):
        if value is None:
            numbers_or_none.append(None)
        elif math.isfinite(value):
            numbers_or_none.append(float(f"{value:.9g}") if short else float(value))
        else:
            numbers_or_none.append(None)
            kind = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
            nonfinite.setdefault(kind, []).append(at)
    return numbers_or_none, nonfinite


def csv_text(
    names: Sequence[str], rows: Iterable[Sequence[Any]], spend: Callable[[int], None] = lambda size: None
) -> bytes:
    """Encodes rows as CSV; `spend` counts characters and raises to stop."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([_cell(name) for name in names])
    spent = 0
    for number, row in enumerate(rows):
        writer.writerow([_cell(value) for value in row])
        if number % _ROWS_PER_CHECK == 0:
            spend(text.tell() - spent)
            spent = text.tell()
    return text.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    # A spreadsheet would run such a string as a formula.
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _is_on_this_host(request: Request) -> bool:
    return request.client is not None and request.client.host.startswith(_LOOPBACK)


class ResponseCache:
    """Caches the last responses by request and version of their sources. Thread-safe."""

    def __init__(self) -> None:
        self._entries: OrderedDict[object, tuple[str, bytes]] = OrderedDict()
        self._size_bytes = 0
        self._lock = Lock()

    def get(self, key: object, version: str) -> bytes | None:
        """Returns the response to a request; None if none of this version is cached."""
        with self._lock:
            stored_version, content = self._entries.get(key, ("", b""))
            return content if stored_version == version else None

    def put(self, key: object, version: str, content: bytes) -> None:
        """Stores a response. The version must have been read before the response was created."""
        with self._lock:
            _, replaced = self._entries.pop(key, ("", b""))
            self._entries[key] = (version, content)
            self._size_bytes += len(content) - len(replaced)
            # The oldest entries are dropped first; a replaced entry was moved to the end by pop and insertion.
            while self._size_bytes > _CACHED_BYTES:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._size_bytes -= len(dropped)


class RowCache:
    """Caches the rows of the last list, so that only changed rows are encoded again. Thread-safe."""

    def __init__(self) -> None:
        self._view: object = None
        self._rows: dict[str, tuple[object, bytes]] = {}
        self._size_bytes = 0
        self._lock = Lock()

    def row(self, view: object, name: str, version: object, make: Callable[[], bytes]) -> bytes:
        """Returns the row `name`; creates it unless this `version` of it is cached."""
        with self._lock:
            # `view` is the key of the list's columns: rows of other columns are dropped.
            # A new dict instead of clear(): a concurrent `row` writes to the old dict, which is then garbage.
            if self._view != view or self._size_bytes > _CACHED_BYTES:
                self._view, self._rows, self._size_bytes = view, {}, 0
            rows = self._rows
            cached = rows.get(name)
        if cached is not None and cached[0] == version:
            return cached[1]
        content = make()
        # make() runs without the lock. Two threads may create the same row; the last one wins, both are equal.
        with self._lock:
            rows[name] = (version, content)
            self._size_bytes += len(content)
        return content
