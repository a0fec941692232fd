"""Headers to OSS, and the content of its responses."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote
from xml.etree import ElementTree

from pai_sdk._data.storage.objects import ObjectInfo, md5_of
from pai_sdk._data.storage.oss.errors import ForeignResponseError
from pai_sdk._data.storage.oss.file_range import FileRange
from pai_sdk._data.storage.uri import OssUri

_CHUNK_BYTES = 1 << 17
_META_PREFIX = "x-oss-meta-"


def meta_headers(meta: Mapping[str, str] | None) -> dict[str, str]:
    """Returns user metadata as headers."""
    return {_META_PREFIX + name: text for name, text in (meta or {}).items()}


def content_md5(content: bytes) -> str:
    """Returns the header `Content-MD5`, with which OSS refuses a damaged body."""
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


class Body:
    """The body of a request, sent in chunks, so that the transfer can be cancelled."""

    def __init__(
        self,
        content: bytes | FileRange,
        check_cancelled: Callable[[Iterable[memoryview]], Iterator[memoryview]],
    ) -> None:
        self._content = content
        # Yields the chunks, or raises when the transfer is cancelled.
        self._check_cancelled = check_cancelled

    def __len__(self) -> int:
        return len(self._content)

    def __iter__(self) -> Iterator[memoryview]:
        content = self._content
        return self._check_cancelled(content if isinstance(content, FileRange) else _chunks(memoryview(content)))


def _chunks(content: memoryview) -> Iterator[memoryview]:
    return (content[start : start + _CHUNK_BYTES] for start in range(0, len(content), _CHUNK_BYTES))


def etag_of(headers: Mapping[str, str], uri: OssUri) -> str:
    """Returns the ETag of an object; a response without one does not come from OSS."""
    etag = headers.get("etag", "").strip('"')
    if not etag:
        raise ForeignResponseError(uri, "a server", "without an ETag")
    return etag


def crc64_in(headers: Mapping[str, str]) -> int | None:
    """Returns the CRC-64 of the content, from the headers of a response; None without one."""
    crc64 = headers.get("x-oss-hash-crc64ecma", "")
    return int(crc64) if crc64.isdecimal() else None


def etag_in(body: bytes, uri: OssUri) -> str:
    """Returns the ETag of an object that OSS created from others, from the body of the response."""
    etag = ElementTree.fromstring(body).findtext("{*}ETag", "").strip('"')  # noqa: S314 - OSS wrote it
    if not etag:
        raise ForeignResponseError(uri, "a server", "without an ETag")
    return etag


def copy_headers(source: OssUri, etag: str) -> dict[str, str]:
    """Returns the headers of a request that copies an object, which must have an ETag."""
    name = f"/{source.bucket}/{quote(source.key, safe='')}"
    return {"x-oss-copy-source": name, "x-oss-copy-source-if-match": etag}


class ObjectEntry(NamedTuple):
    """An object as a list names it; `modified_s` in seconds since 1970."""

    key: str
    size: int
    etag: str
    storage_class: str
    modified_s: float

    def info(self, prefix: OssUri) -> ObjectInfo:
        """Returns the metadata; raises InvalidInputError for a key that no URI can name."""
        uri = OssUri(prefix.bucket, self.key, prefix.endpoint)
        return ObjectInfo(
            uri, self.size, self.etag, {}, storage_class=self.storage_class, modified_s=self.modified_s
        )


class ObjectPage(NamedTuple):
    """A page of a list; `next_token` requests the next page, and is None on the last one."""

    objects: list[ObjectEntry]
    next_token: str | None


def page_in(body: bytes) -> ObjectPage:
    """Returns the page in a response to ListObjectsV2; raises ValueError or ParseError for another content."""
    root = ElementTree.fromstring(body)  # noqa: S314 - OSS wrote it
    fields = {child.tag: child.text or "" for child in root}
    plain = unquote if fields.get("EncodingType") == "url" else str
    try:
        objects = [_object_entry(element, plain) for element in root.findall("Contents")]
        is_last = {"true": False, "false": True}[fields["IsTruncated"]]
        return ObjectPage(objects, None if is_last else plain(fields["NextContinuationToken"]))
    except KeyError as error:
        raise ValueError(f"a list without {error.args[0]}") from None


def _object_entry(element: ElementTree.Element, plain: Callable[[str], str]) -> ObjectEntry:
    fields = {child.tag: child.text or "" for child in element}
    return ObjectEntry(
        plain(fields["Key"]),
        int(fields["Size"]),
        fields["ETag"].strip('"'),
        fields.get("StorageClass", ""),
        _modified_at(fields["LastModified"]),
    )


@lru_cache(maxsize=1024)  # objects of one folder were often written in the same seconds
def _modified_at(text: str) -> float:
    return datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=timezone.utc).timestamp()


def info_of(uri: OssUri, headers: Mapping[str, str]) -> ObjectInfo:
    """Returns the metadata of an object from the headers of a response."""
    prefix = len(_META_PREFIX)
    etag = etag_of(headers, uri)
    return ObjectInfo(
        uri=uri,
        size_bytes=int(headers.get("content-length", -1)),
        etag=etag,
        meta={name[prefix:]: text for name, text in headers.items() if name.startswith(_META_PREFIX)},
        content_md5=md5_of(headers, etag),
        content_crc64=crc64_in(headers),
        storage_class=headers.get("x-oss-storage-class", ""),
        modified_s=_seconds(headers.get("last-modified")),
    )


@lru_cache(maxsize=1024)  # objects of one folder were often written in the same seconds
def _seconds(date: str | None) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None
