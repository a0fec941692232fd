"""Part of the code folder."""

from __future__ import annotations

from collections.abc import Iterable


def total(rows: Iterable[str]) -> int:
    """Returns the sum of numbers in text."""
    return sum(map(int, rows))
