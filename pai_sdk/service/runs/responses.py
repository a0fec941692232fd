"""Responses about runs: JSON without NaN, CSV that no spreadsheet runs, columns; each with an ETag.

JSON has no NaN and no infinity. A list of numbers has null in their places, and the object beside it their
indices: `"values": [1.5, null], "nonfinite": {"nan": [1]}`.
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

from pai_sdk.service.budgets import Work

__all__ = [
    "IMMUTABLE",
    "LIVE",
    "ResponseCache",
    "RowCache",
    "best_of",
    "csv_text",
    "finite",
    "json_bytes",
    "json_list",
    "json_response",
    "tagged",
]

LIVE = {"Cache-Control": "private, no-cache"}
"""The headers of a response that may be another one at any time: a client asks again, with its ETag."""

IMMUTABLE = {"Cache-Control": "private, max-age=31536000, immutable"}
"""The headers of a response that stays."""

logger = logging.getLogger(__name__)

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GZIP_LEVEL = 1
_LEAST_GZIPPED_BYTES = 1400  # what fits into a packet gains nothing
_LOOPBACK = ("127.", "::1", "localhost")
_CACHED_BYTES = 8 << 20
_NUMBERS_A_PIECE = 8192
_ROWS_A_PIECE = 512
_ROWS_A_CHECK = 1000


def json_response(value: Mapping[str, Any], headers: Mapping[str, str], work: Work | None = None) -> Response:
    """An object as JSON; with the work of a request, its bytes are counted."""
    content = json_bytes(value)
    if work is not None:
        work.spend(len(content))
    return Response(content, media_type="application/json", headers=dict(headers))


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """An object as JSON; a number that is not finite must have been replaced before."""
    return b"".join(_json_pieces(value))


def json_list(name: str, items: Iterable[Mapping[str, Any] | bytes], rest: Mapping[str, Any], work: Work) -> bytes:
    """An object with a long list as JSON, which is made no longer than the budget of the request allows.

    Args:
        name: of the list, which comes first in the object.
        items: of the list; made one after the other. Bytes are JSON already.
        rest: what else the object has.
        work: counts the bytes.

    Raises:
        WireError: the response is too large, or takes too long.
    """
    parts = []
    for item in items:
        parts.append(item if isinstance(item, bytes) else json_bytes(item))
        work.spend(len(parts[-1]) + 1)
    end = json_bytes(rest)[1:]
    return b"".join([b"{", _dumped(name), b":[", b",".join(parts), b"]", b"," if rest else b"", end])


def _json_pieces(value: Any) -> Iterator[bytes]:
    # In pieces: the encoder keeps all other threads waiting until it returns, which for a million numbers is half
    # a second.
    if isinstance(value, Mapping):
        for at, (key, item) in enumerate(value.items()):
            yield b"%s%s:" % (b"," if at else b"{", _dumped(str(key)))
            yield from _json_pieces(item)
        yield b"}" if value else b"{}"
    elif isinstance(value, list) and value and _is_nested(value[0]):
        for at, item in enumerate(value):
            yield b"," if at else b"["
            yield from _json_pieces(item)
        yield b"]"
    elif isinstance(value, list) and value:
        length = _ROWS_A_PIECE if isinstance(value[0], dict) else _NUMBERS_A_PIECE
        for begin in range(0, len(value), length):
            yield b"," if begin else b"["
            yield _dumped(value[begin : begin + length])[1:-1]
        yield b"]"
    else:
        yield _dumped(value)


def _is_nested(value: Any) -> bool:
    """True if it may be large itself: a list, or an object with one in it."""
    return isinstance(value, list) or (
        isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values())
    )


def _dumped(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        # One row of a list may have been stored by an earlier release, which accepted it.
        logger.warning("a number that is not finite is sent as null")
        text = json.dumps(_without_nan(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="replace")  # a name in an event file may have a lone surrogate


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, (list, tuple)) else value


def tagged(request: Request, content: bytes, media_type: str, headers: Mapping[str, str]) -> Response:
    """A response with a strong ETag: 304 where the client has it; compressed unless the client is on this host.

    Args:
        request: which asks.
        content: the response.
        media_type: of the content.
        headers: further headers.
    """
    digest = hashlib.blake2b(content, digest_size=12).hexdigest()
    is_zipped = (
        len(content) >= _LEAST_GZIPPED_BYTES
        and not _is_on_this_host(request)
        and "gzip" in request.headers.get("accept-encoding", "")
    )
    etag = f'"{digest}-gzip"' if is_zipped else f'"{digest}"'
    all_headers = {**headers, "ETag": etag, "Vary": "Accept, Accept-Encoding"}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if etag in known:
        return Response(status_code=304, headers=all_headers)
    if is_zipped:
        all_headers["Content-Encoding"] = "gzip"
        content = gzip.compress(content, _GZIP_LEVEL, mtime=0)
    return Response(content, media_type=media_type, headers=all_headers)


def best_of(request: Request, offered: Sequence[str]) -> str:
    """The media type that the client names first in `Accept`; the first one that is offered if it names none."""
    for part in request.headers.get("accept", "").split(","):
        wanted = part.partition(";")[0].strip().lower()
        if wanted in offered:
            return wanted
    return offered[0]


def finite(values: Iterable[float | None]) -> tuple[list[float | None], dict[str, list[int]]]:
    """Numbers for JSON, and the indices of those that are not finite.

    A number that single precision holds is written with the nine digits that tell it from its neighbours.

    Example:
        >>> finite([1.5, float("nan"), None, float("-inf")])
        ([1.5, None, None, None], {'nan': [1], '-inf': [3]})
    """
    import numpy as np

    given = list(values)
    numbers = np.array([math.nan if value is None else value for value in given], np.float64)
    with np.errstate(over="ignore"):
        is_single = numbers.astype(np.float32).astype(np.float64) == numbers
    if np.isfinite(numbers).all():
        return [
            float(f"{value:.9g}") if short else value
            for value, short in zip(numbers.tolist(), is_single.tolist(), strict=True)
        ], {}
    found: list[float | None] = []
    others: dict[str, list[int]] = {}
    for at, (value, short) in enumerate(zip(given, is_single.tolist(), strict=True)):
        if value is None:
            found.append(None)
        elif math.isfinite(value):
            found.append(float(f"{value:.9g}") if short else float(value))
        else:
            found.append(None)
            kind = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
            others.setdefault(kind, []).append(at)
    return found, others


def csv_text(
    names: Sequence[str], rows: Iterable[Sequence[Any]], spend: Callable[[int], None] = lambda size: None
) -> bytes:
    r"""Rows as CSV. Text that a spreadsheet would take for a formula gets an apostrophe before it.

    Args:
        names: of the columns.
        rows: their cells; made one after the other.
        spend: counts the characters as they are made, and ends this by raising.

    Example:
        >>> csv_text(["run", "value"], [["=1+1", -2.5]])
        b"run,value\r\n'=1+1,-2.5\r\n"
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([_cell(name) for name in names])
    spent = 0
    for number, row in enumerate(rows):
        writer.writerow([_cell(value) for value in row])
        if number % _ROWS_A_CHECK == 0:
            spend(text.tell() - spent)
            spent = text.tell()
    return text.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _is_on_this_host(request: Request) -> bool:
    return request.client is not None and request.client.host.startswith(_LOOPBACK)


class ResponseCache:
    """The last responses, while the version of their sources is the same. Safe for several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[object, tuple[str, bytes]] = OrderedDict()
        self._size_bytes = 0
        self._lock = Lock()

    def get(self, key: object, version: str) -> bytes | None:
        """The response to a question; None if there is none of this version."""
        with self._lock:
            made_of, content = self._known.get(key, ("", b""))
            return content if made_of == version else None

    def put(self, key: object, version: str, content: bytes) -> None:
        """Keep a response. The version must have been read before the response was made."""
        with self._lock:
            _, replaced = self._known.pop(key, ("", b""))
            self._known[key] = (version, content)
            self._size_bytes += len(content) - len(replaced)
            while self._size_bytes > _CACHED_BYTES:
                _, (_, dropped) = self._known.popitem(last=False)
                self._size_bytes -= len(dropped)


class RowCache:
    """The rows of the last list, so that only those that have changed are made again. Safe for several threads."""

    def __init__(self) -> None:
        self._of: object = None
        self._rows: dict[str, tuple[object, bytes]] = {}
        self._size_bytes = 0
        self._lock = Lock()

    def row(self, of: object, name: str, version: object, make: Callable[[], bytes]) -> bytes:
        """A row, made now unless it is known.

        Args:
            of: what the rows of the list show. Those of another list are forgotten.
            name: of the row.
            version: of its content.
            make: makes it.
        """
        with self._lock:
            if self._of != of or self._size_bytes > _CACHED_BYTES:
                self._of, self._rows, self._size_bytes = of, {}, 0
            rows = self._rows
            known = rows.get(name)
        if known is not None and known[0] == version:
            return known[1]
        content = make()
        with self._lock:
            rows[name] = (version, content)
            self._size_bytes += len(content)
        return content
