"""Lists that come page by page (`PageNumber`, `PageSize`, `TotalCount`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def pages(
    fetch: Callable[[int, int], Mapping[str, Any]], items: str, *, page_size: int = 100
) -> Iterator[list[Any]]:
    """The pages of a list; each is requested when the caller has consumed the one before.

    The service may give smaller pages than requested, and may leave the total out.

    Args:
        fetch: requests a page: (number, counted from 1; size).
        items: the field of the response that has the page's items.
        page_size: items in a page.

    Example:
        >>> responses = {1: {"Jobs": ["a", "b"], "TotalCount": "3"}, 2: {"Jobs": ["c"], "TotalCount": "3"}}
        >>> [*pages(lambda number, size: responses[number], "Jobs", page_size=2)]
        [['a', 'b'], ['c']]
    """
    seen, number = 0, 1
    before: list[Any] | None = None
    while True:
        response = fetch(number, page_size)
        page = response.get(items) or []
        if not page or page == before:  # the same page again: this list has no page numbers
            return
        yield page
        seen += len(page)
        total = number_of(response.get("TotalCount"))
        if total is not None and seen >= total:
            return
        before = page
        number += 1


def number_of(value: Any) -> int | None:
    """A count, which the service writes as a number or as text; None when there is none."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
