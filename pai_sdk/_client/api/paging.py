"""Reads lists page by page (`PageNumber`, `PageSize`, `TotalCount`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from pai_sdk._wire.base import TOTAL_COUNT, items_key


def pages(
    fetch: Callable[[int, int], Mapping[str, Any]],
    body: type[BaseModel],
    *,
    page_size: int = 100,
    skip: int = 0,
) -> Iterator[list[Any]]:
    """Yields the pages of a list; each is requested when the caller has consumed the one before.

    The service may return smaller pages than requested, and may leave the total out. The pages of the first `skip`
    items are not requested, unless the service returns smaller pages.

    Args:
        fetch: requests a page: (number, counted from 1; size).
        body: model of the response, whose first field has the page's items.
        page_size: items per page.
        skip: number of first items to leave out.
    """
    key = items_key(body)
    number = skip // page_size + 1
    num_before = (number - 1) * page_size
    previous_page: list[Any] | None = None
    while True:
        response = fetch(number, page_size)
        page = response.get(key) or []
        total = number_of(response.get(TOTAL_COUNT))
        if previous_page is None and number > 1 and 0 < len(page) < page_size and total != num_before + len(page):
            number, num_before = (
                1,
                0,
            )  # its pages are smaller, so this page has other items than expected: start with the first
            continue
        if not page or page == previous_page:  # the same page again: the service ignores page numbers
            return
        if items := page[max(0, skip - num_before) :]:
            yield items
        num_before += len(page)
        if total is not None and num_before >= total:
            return
        previous_page = page
        number += 1


def number_of(value: Any) -> int | None:
    """Returns a count, which services write as a number or a string; None when there is none."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
