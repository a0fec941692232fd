"""URIs of remote data: `oss://` in detail, the other schemes as far as a request needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pai_sdk._core.names.hints import wrong_type
from pai_sdk._core.names.peer_names import value_hint
from pai_sdk.errors import InvalidInputError, Problem

REMOTE_SCHEMES = frozenset({"oss", "nas", "cpfs", "bmcpfs", "odps"})
"""Schemes that a channel can read without an upload."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9-]{1,61})[a-z0-9]")
_ENDPOINT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::([0-9]{1,5}))?")
_ODPS = re.compile(r"odps://[^/]+/tables/[^/]+(?:/.*)?", re.DOTALL)
_MAX_KEY_BYTES = 1023


@dataclass(frozen=True)
class OssUri:
    """An object or a folder in OSS: `oss://bucket[.endpoint[:port]]/key`.

    All that follows the slash after the authority is the key, character by character: `?`, `#`, `%`, spaces and
    unicode mean themselves and nothing is decoded. A query such as `?endpoint=…`, which alipai reads, is therefore
    part of the key; write the endpoint into the authority instead.

    Attributes:
        bucket: 3 to 63 of `a-z`, `0-9` and `-`.
        key: the object's key; a folder's key is empty (the whole bucket) or ends with `/`.
        endpoint: the host, with its port if it has one; None means that of the client that opens the URI.

    Example:
        >>> uri = OssUri.parse("oss://models.oss-cn-hangzhou.aliyuncs.com/runs/7/")
        >>> uri.bucket, uri.endpoint, uri.join("model.pt").key
        ('models', 'oss-cn-hangzhou.aliyuncs.com', 'runs/7/model.pt')
    """

    bucket: str
    key: str = ""
    endpoint: str | None = None

    def __post_init__(self) -> None:
        problem = _bucket_problem(self.bucket) or _endpoint_problem(self.endpoint) or _key_problem(self.key)
        if problem:
            message, hint = problem
            raise InvalidInputError([Problem(_render(self), message, hint)])

    @classmethod
    def parse(cls, text: str) -> OssUri:
        """Read a URI.

        Raises:
            InvalidInputError: it is not an `oss://` URI, or bucket, endpoint or key cannot be.
        """
        if not isinstance(text, str):
            raise InvalidInputError([wrong_type("uri", text, "a string", "write oss://bucket/key")])
        if not text.startswith("oss://"):
            raise InvalidInputError([Problem(repr(text), "is not an OSS URI", "write oss://bucket/key")])
        authority, _, key = text.removeprefix("oss://").partition("/")
        bucket, dot, endpoint = authority.partition(".")
        return cls(bucket, key, endpoint if dot else None)

    def __str__(self) -> str:
        return _render(self)

    @property
    def is_dir(self) -> bool:
        """True if it names a folder."""
        return not self.key or self.key.endswith("/")

    @property
    def name(self) -> str:
        """The last part of the key, without a slash; empty for a whole bucket."""
        return self.key.rstrip("/").rpartition("/")[2]

    def as_dir(self) -> OssUri:
        """This name as a folder, with a `/` at its end."""
        return self if self.is_dir else replace(self, key=f"{self.key}/")

    def join(self, name: str) -> OssUri:
        """The URI of `name` below this one; `name` may have slashes within."""
        return replace(self, key=self.as_dir().key + name)


def uri_scheme(text: str) -> str | None:
    """Returns the scheme in lower case, or None for a string without one, such as a path."""
    match = _SCHEME.match(text)
    return match.group(1).lower() if match else None


def is_remote_uri(text: str) -> bool:
    """Returns True if the service reads the URI by itself: OSS, NAS, CPFS or a MaxCompute table."""
    return uri_scheme(text) in REMOTE_SCHEMES


def remote_uri_problems(text: str, where: str) -> list[Problem]:
    """Returns the problems of a URI that the service will read; empty without problems."""
    scheme = uri_scheme(text)
    if scheme not in REMOTE_SCHEMES:
        schemes = ", ".join(f"{name}://" for name in sorted(REMOTE_SCHEMES))
        _, hint = value_hint(text) or ("", "")
        return [Problem(where, f"{text!r} is not a URI of {schemes}", hint)]
    if scheme == "oss":
        try:
            OssUri.parse(text)
        except InvalidInputError as error:
            return [Problem(where, str(problem)) for problem in error.problems]
    elif scheme == "odps" and not _ODPS.fullmatch(text):
        return [Problem(where, f"{text!r} is not a table", "write odps://project/tables/table")]
    elif not text.partition("://")[2].partition("/")[0]:
        return [Problem(where, f"{text!r} names no file system", f"write {scheme}://file-system/path/")]
    return []


def _render(uri: OssUri) -> str:
    authority = uri.bucket if uri.endpoint is None else f"{uri.bucket}.{uri.endpoint}"
    return f"oss://{authority}/{uri.key}"


def _bucket_problem(bucket: str) -> tuple[str, str] | None:
    if _BUCKET.fullmatch(bucket):
        return None
    if ":" in bucket:
        return f"bucket {bucket!r} has a port", "a port needs a host: oss://bucket.host:port/key"
    return f"{bucket!r} is not a bucket name", "3 to 63 of a-z, 0-9 and -, with no - at either end"


def _endpoint_problem(endpoint: str | None) -> tuple[str, str] | None:
    if endpoint is None:
        return None
    if endpoint.startswith("["):  # oss2 refuses them
        return f"{endpoint!r} is an IPv6 address, which the OSS library cannot use", "write a host name"
    match = _ENDPOINT.fullmatch(endpoint)
    if not match or ".." in endpoint:
        return f"{endpoint!r} is not an endpoint", "write host or host:port, such as oss-cn-hangzhou.aliyuncs.com"
    if match.group(1) is not None and not 0 < int(match.group(1)) < 65536:
        return f"{match.group(1)} is not a port", "ports go from 1 to 65535"
    return None


def _key_problem(key: str) -> tuple[str, str] | None:
    try:
        length = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        return f"key {key!r} is not UTF-8", "rename the file"
    if length > _MAX_KEY_BYTES:
        return f"the key has {length} bytes", f"OSS allows {_MAX_KEY_BYTES}"
    if key.startswith(("/", "\\")):
        return f"key {key!r} starts with {key[0]!r}", "OSS keys must not start with / or \\"
    # HTTP libraries resolve these two as path segments, so that the request would name another object.
    if key in (".", ".."):
        return f"key {key!r} cannot be sent", "choose another name"
    return None
