"""What the actions on all kinds of resources share: calls, and lists that are read page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from pai_sdk._client.api.responses import ApiResponse, read_items
from pai_sdk._client.api.transport import Transport
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._wire.base import TOTAL_COUNT, items_key, wire_names
from pai_sdk._wire.pai.wire import Received
from pai_sdk.errors import InvalidInputError, NotFoundError, Problem

_Record = TypeVar("_Record", bound=Received)

_NO_SUCH_ACTION = "InvalidAction.NotFound"


class Resource:
    """Calls the actions on one kind of resource."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        short_tracebacks(cls)

    def __init__(self, transport: Transport, workspace_id: str | None = None) -> None:
        self._transport = transport
        self._workspace_id = workspace_id

    def _call(
        self,
        action: str,
        method: str,
        path: str,
        path_params: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        **options: Any,  # of Transport.call
    ) -> ApiResponse:
        return self._transport.call(action, method, path, path_params, query, **options)

    def _list(
        self,
        model: type[_Record],
        body: type[BaseModel],
        action: str,
        path: str,
        path_params: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        *,
        page_size: int = 100,
        **defaults: Any,
    ) -> Iterator[_Record]:
        """Yields the items of all pages; `defaults` are fields that the service may leave out."""
        pages = self._pages(body, action, path, path_params, query, page_size=page_size)
        return read_items(model, pages, action, **defaults)

    def _pages(
        self,
        body: type[BaseModel],
        action: str,
        path: str,
        path_params: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        *,
        page_size: int = 100,
        skip: int = 0,
    ) -> Iterator[list[Any]]:
        """Yields the pages of a list without its first `skip` items; the caller's iteration requests them."""
        # `body` is the model of the response, whose first field has the items. The service may return smaller
        # pages than requested, and may leave the total out.
        key = items_key(body)
        number = skip // page_size + 1
        num_before = (number - 1) * page_size
        previous_page: list[Any] | None = None
        while True:
            paged = {**(query or {}), **wire_names(page_number=number, page_size=page_size)}
            response = self._call(action, "GET", path, path_params, paged).json
            page = response.get(key) or []
            total = number_of(response.get(TOTAL_COUNT))
            is_small = 0 < len(page) < page_size and total != num_before + len(page)
            if previous_page is None and number > 1 and is_small:
                # Its pages are smaller, so this page has other items than expected: start with the first.
                number, num_before = 1, 0
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


def call_service_action(transport: Transport, *args: Any, feature: str, hint: str, **options: Any) -> ApiResponse:
    """Calls an action that only services of this package have; from others, raises `InvalidInputError`."""
    try:
        return transport.call(*args, **options)
    except NotFoundError as error:
        if error.code != _NO_SUCH_ACTION:
            raise
        raise InvalidInputError([Problem("session", f"the service does not support {feature}", hint)]) from error
