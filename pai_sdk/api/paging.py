"""Reads lists page by page (`PageNumber`, `PageSize`, `TotalCount`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from pai_sdk._wire.base import TOTAL_COUNT, items_key


def pages(
    fetch: Callable[[int, int], Mapping[str, Any]],
    body: type[BaseModel] | str,
    *,
    page_size: int = 100,
    skip: int = 0,
) -> Iterator[list[Any]]:
    """The pages of a list; each is requested when the caller has consumed the one before.

    The service may give smaller pages than requested, and may leave the total out.

    Args:
        fetch: requests a page: (number, counted from 1; size).
        body: the model of the response, whose first field has the page's items; or the name of that field.
        page_size: items in a page.
        skip: leave out so many of the first items. Their pages are not requested, unless the service gives smaller
            pages than requested.

    Example:
        >>> class Jobs(BaseModel):
        ...     jobs: list[str]
        >>> responses = {1: {"Jobs": ["a", "b"], "TotalCount": "3"}, 2: {"Jobs": ["c"], "TotalCount": "3"}}
        >>> [*pages(lambda number, size: responses[number], Jobs, page_size=2)]
        [['a', 'b'], ['c']]
    """
    key = body if isinstance(body, str) else items_key(body)
    number = skip // page_size + 1
    seen = (number - 1) * page_size
    before: list[Any] | None = None
    while True:
        response = fetch(number, page_size)
        page = response.get(key) or []
        total = number_of(response.get(TOTAL_COUNT))
        if before is None and number > 1 and 0 < len(page) < page_size and total != seen + len(page):
            number, seen = 1, 0  # its pages are smaller, so this one begins elsewhere
            continue
        if not page or page == before:  # the same page again: this list has no page numbers
            return
        if rest := page[max(0, skip - seen) :]:
            yield rest
        seen += len(page)
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
