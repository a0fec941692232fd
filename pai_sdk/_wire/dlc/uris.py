"""URIs of storages as DLC writes them: with the endpoint of OSS in the host. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "MOUNTABLE",
    "OssUri",
    "internal_endpoint",
    "parse_oss",
    "uri_problem",
    "with_endpoint",
    "without_endpoint",
]

MOUNTABLE = ("oss", "nas", "cpfs", "bmcpfs")
"""Schemes that a job can mount."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PUBLIC_ENDPOINT = re.compile(r"(oss-[a-z0-9-]+?)(-internal)?(\.aliyuncs\.com)")


@dataclass(frozen=True)
class OssUri:
    """A URI of OSS.

    Attributes:
        bucket: its name, which has no dot.
        endpoint: host, perhaps with a port, and without a scheme; None where the URI names a bucket only.
        key: the part behind the first slash.
    """

    bucket: str
    endpoint: str | None
    key: str

    def __str__(self) -> str:
        host = f"{self.bucket}.{self.endpoint}" if self.endpoint else self.bucket
        return f"oss://{host}/{self.key}"


def parse_oss(uri: str) -> OssUri | None:
    """Parses a URI of OSS, of either form; None for other ones.

    Example:
        >>> parse_oss("oss://data.oss-cn-beijing-internal.aliyuncs.com/a/")
        OssUri(bucket='data', endpoint='oss-cn-beijing-internal.aliyuncs.com', key='a/')
    """
    scheme = _SCHEME.match(uri)
    if scheme is None or scheme[1].lower() != "oss":
        return None
    host, _, key = uri[scheme.end() :].partition("/")
    bucket, _, endpoint = host.partition(".")
    return OssUri(bucket, endpoint or None, key) if bucket else None


def with_endpoint(uri: str, endpoint: str) -> str:
    """Returns a URI of OSS with its endpoint, as DLC mounts it; unchanged if it has one or is not of OSS.

    Example:
        >>> with_endpoint("oss://data/a/", "https://oss-cn-beijing.aliyuncs.com")
        'oss://data.oss-cn-beijing.aliyuncs.com/a/'
    """
    location = parse_oss(uri)
    if location is None or location.endpoint:
        return uri
    return str(OssUri(location.bucket, _SCHEME.sub("", endpoint).rstrip("/"), location.key))


def without_endpoint(uri: str) -> str:
    """Returns a URI of OSS without its endpoint, as this package names objects; other ones unchanged.

    Example:
        >>> without_endpoint("oss://data.oss-cn-beijing.aliyuncs.com/a/")
        'oss://data/a/'
    """
    location = parse_oss(uri)
    return uri if location is None else str(OssUri(location.bucket, None, location.key))


def internal_endpoint(endpoint: str) -> str:
    """Returns the endpoint that OSS has inside of its region; one that has no such form, unchanged.

    Example:
        >>> internal_endpoint("oss-cn-beijing.aliyuncs.com")
        'oss-cn-beijing-internal.aliyuncs.com'
    """
    host = _SCHEME.sub("", endpoint).rstrip("/")
    match = _PUBLIC_ENDPOINT.fullmatch(host)
    return f"{match[1]}-internal{match[3]}" if match else host


def uri_problem(uri: str) -> str | None:
    """Returns why a job cannot mount a URI; None if it may."""
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return f"{uri!r} is not a URI such as 'oss://bucket.endpoint/folder/'"
    if scheme[1] not in MOUNTABLE:
        return f"{scheme[1]}:// cannot be mounted; these can: {', '.join(MOUNTABLE)}"
    host, _, _ = uri[scheme.end() :].partition("/")
    return None if host else f"{uri!r} names no {'bucket' if scheme[1] == 'oss' else 'file system'}"
