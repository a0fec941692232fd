"""Cursors: how far a client has read, as a string that only the service parses.

A cursor has a part for each source, `<epoch>.<version>.<offset>`. The epoch changes when a source is replaced, for
example a file, or when the service is restarted. Then the client has to fetch again.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pai_sdk._data.run.events.series import Series

_PART = re.compile(r"([0-9a-f]{8}):([0-9a-zA-Z_-]{1,40})\.([0-9]{1,18})\.([0-9]{1,18})")
_MAX_CURSOR_LENGTH = 16_384


@dataclass(frozen=True)
class Position:
    """The position up to which one source was read."""

    epoch: str
    version: int
    offset: int  # number of points or lines that were read

    def __str__(self) -> str:
        return f"{self.epoch}.{self.version}.{self.offset}"


def join_cursor(positions: Mapping[str, Position]) -> str:
    """Joins the positions of several sources in one cursor."""
    return "~".join(f"{_key(source)}:{position}" for source, position in positions.items())


def read_cursor(text: str, sources: list[str]) -> dict[str, Position]:
    """Parses the positions of these sources in a cursor; missing and malformed ones are left out."""
    positions: dict[str, Position] = {}
    keys = {_key(source): source for source in sources}
    for part in text[:_MAX_CURSOR_LENGTH].split("~"):
        match = _PART.fullmatch(part)
        if match is not None and match[1] in keys:
            positions[keys[match[1]]] = Position(match[2], int(match[3]), int(match[4]))
    return positions


def epoch_of_points(series: Series, count: int) -> str:
    """Returns the epoch of the first `count` points of a series, by its first and last point."""
    if not count:
        return "0"
    ends = [0, count - 1]
    return f"{zlib.crc32(series.wall[ends].tobytes() + series.step[ends].tobytes()):08x}"


def _key(source: str) -> str:
    # A hash keeps cursors short, since names of runs and metrics are long and can have any character.
    return f"{zlib.crc32(source.encode(errors='replace')):08x}"
