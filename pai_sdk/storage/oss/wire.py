"""Headers to OSS, and the content of its responses."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree

from pai_sdk.storage.objects import ObjectInfo, md5_of
from pai_sdk.storage.oss.errors import ForeignResponseError
from pai_sdk.storage.uri import OssUri

__all__ = [
    "Body",
    "ListedObject",
    "ListedPage",
    "content_md5",
    "etag_in",
    "etag_of",
    "info_of",
    "meta_headers",
    "page_in",
]

_PIECE_BYTES = 1 << 17
_META_PREFIX = "x-oss-meta-"


def meta_headers(meta: Mapping[str, str] | None) -> dict[str, str]:
    """User metadata as headers."""
    return {_META_PREFIX + name: text for name, text in (meta or {}).items()}


def content_md5(content: bytes) -> str:
    """The header `Content-MD5`: with it, OSS refuses a body that was changed on the way."""
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


class Body:
    """The body of a request, sent in pieces, so that the transfer can be cancelled.

    Args:
        content: all of it.
        check_cancelled: yields the pieces, or raises when the transfer is cancelled.
    """

    def __init__(
        self, content: bytes, check_cancelled: Callable[[Iterable[memoryview]], Iterator[memoryview]]
    ) -> None:
        self._content = memoryview(content)
        self._check_cancelled = check_cancelled

    def __len__(self) -> int:
        return len(self._content)

    def __iter__(self) -> Iterator[memoryview]:
        starts = range(0, len(self._content), _PIECE_BYTES)
        return self._check_cancelled(self._content[start : start + _PIECE_BYTES] for start in starts)


def etag_of(headers: Mapping[str, str], uri: OssUri) -> str:
    """The ETag of an object; a response without one does not come from OSS.

    Raises:
        ForeignResponseError: there is none.
    """
    etag = headers.get("etag", "").strip('"')
    if not etag:
        raise ForeignResponseError(uri, "a server", "without an ETag")
    return etag


def etag_in(body: bytes, uri: OssUri) -> str:
    """The ETag of an object that OSS made from others, from the body of the response.

    Raises:
        ForeignResponseError: there is none.
    """
    etag = ElementTree.fromstring(body).findtext("{*}ETag", "").strip('"')  # noqa: S314 - OSS wrote it
    if not etag:
        raise ForeignResponseError(uri, "a server", "without an ETag")
    return etag


class ListedObject(NamedTuple):
    """An object as a list names it; `modified_s` in seconds since 1970."""

    key: str
    size: int
    etag: str
    storage_class: str
    modified_s: float


class ListedPage(NamedTuple):
    """A page of a list; `next_token` asks for the page after it, and is None on the last one."""

    objects: list[ListedObject]
    next_token: str | None


def page_in(body: bytes) -> ListedPage:
    """The page in a response to ListObjectsV2.

    Raises:
        ValueError: an element is missing, or its text is no number or date.
        ParseError: it is not XML.
    """
    root = ElementTree.fromstring(body)  # noqa: S314 - OSS wrote it
    facts = {child.tag: child.text or "" for child in root}
    plain = unquote if facts.get("EncodingType") == "url" else str
    try:
        found = [_listed(one, plain) for one in root.findall("Contents")]
        is_last = {"true": False, "false": True}[facts["IsTruncated"]]
        return ListedPage(found, None if is_last else plain(facts["NextContinuationToken"]))
    except KeyError as error:
        raise ValueError(f"a list without {error.args[0]}") from None


def _listed(element: ElementTree.Element, plain: Callable[[str], str]) -> ListedObject:
    facts = {child.tag: child.text or "" for child in element}
    return ListedObject(
        plain(facts["Key"]),
        int(facts["Size"]),
        facts["ETag"].strip('"'),
        facts.get("StorageClass", ""),
        _listed_at(facts["LastModified"]),
    )


@lru_cache(maxsize=1024)  # objects of one folder were often written in the same seconds
def _listed_at(text: str) -> float:
    return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=timezone.utc).timestamp()


def info_of(uri: OssUri, headers: Mapping[str, str]) -> ObjectInfo:
    """The facts about an object in the headers of a response."""
    prefix = len(_META_PREFIX)
    etag = etag_of(headers, uri)
    crc64 = headers.get("x-oss-hash-crc64ecma", "")
    return ObjectInfo(
        uri=uri,
        size_bytes=int(headers.get("content-length", -1)),
        etag=etag,
        meta={name[prefix:]: text for name, text in headers.items() if name.startswith(_META_PREFIX)},
        content_md5=md5_of(headers, etag),
        content_crc64=int(crc64) if crc64.isdecimal() else None,
        storage_class=headers.get("x-oss-storage-class", ""),
        modified_s=_seconds(headers.get("last-modified")),
    )


@lru_cache(maxsize=1024)  # objects of one folder were often written in the same seconds
def _seconds(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None
