"""Files to and from OSS, by the names that code written for alipai imports."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from pai_sdk._client.session.default import get_default_session
from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.names.hints import wrong_type
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.paths import parse_path
from pai_sdk._data.storage import transfer
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

__all__ = ["OssUriObj", "download", "is_oss_uri", "upload"]

_ARCHIVE = "source.tar.gz"
_ENDPOINTS, _ROLE = ("endpoint", "host"), "role_arn"


class OssUriObj:
    """The parts of an OSS URI.

    Args:
        uri: `oss://bucket[.endpoint]/key`, where `?endpoint=…`, `?host=…` and `?role_arn=…` may follow.

    Attributes:
        bucket_name: the bucket.
        object_key: the key.
        endpoint: the endpoint that the URI names, with its port, or None.
        role_arn: the role that the URI names, or None.

    Raises:
        InvalidInputError: it is no OSS URI.

    Example:
        >>> uri = OssUriObj("oss://models.oss-cn-hangzhou.aliyuncs.com/runs/7/model.pt")
        >>> uri.bucket_name, uri.object_key, uri.endpoint
        ('models', 'runs/7/model.pt', 'oss-cn-hangzhou.aliyuncs.com')
    """

    def __init__(self, uri: str) -> None:
        self.bucket_name, self.object_key, self.endpoint, self.role_arn = self.parse(uri)

    @classmethod
    def parse(cls, oss_uri: str) -> tuple[str, str, str | None, str | None]:
        """Bucket, key, endpoint and role."""
        text, query = str(oss_uri), {}
        path, mark, parameters = text.partition("?")
        if mark and {*(parsed := parse_qs(parameters))} & {
            *_ENDPOINTS,
            _ROLE,
        }:  # otherwise, the "?" is part of the key
            text, query = path, parsed
        uri = OssUri.parse(text)
        endpoint = uri.endpoint or next((query[name][0] for name in _ENDPOINTS if name in query), None)
        return uri.bucket, uri.key, endpoint, query[_ROLE][0] if _ROLE in query else None

    @classmethod
    def from_bucket_key_endpoint(cls, bucket_name: str, object_key: str, endpoint: str | None = None) -> OssUriObj:
        """The URI of an object; a scheme before the endpoint and slashes before the key are left out."""
        host = None if endpoint is None else endpoint.rpartition("://")[2]
        return cls(str(OssUri(bucket_name, object_key.lstrip("/"), host)))

    @property
    def uri(self) -> str:
        """The URI without an endpoint."""
        return f"oss://{self.bucket_name}/{self.object_key}"

    def get_uri_with_endpoint(self, endpoint: str | None = None) -> str:
        """The URI with the endpoint given, or else with its own.

        Raises:
            InvalidInputError: there is neither.
        """
        host = endpoint or self.endpoint
        if not host:
            raise InvalidInputError([Problem("endpoint", "is unknown", "give one: oss-<region>.aliyuncs.com")])
        return f"oss://{self.bucket_name}.{host.rpartition('://')[2]}/{self.object_key}"

    def get_dir_uri(self) -> str:
        """The URI of the folder that the object is in; of a folder, the folder itself."""
        return f"oss://{self.bucket_name}{self.parse_object_key()[1]}"

    def parse_object_key(self) -> tuple[bool, str, str | None]:
        """True if the key is that of a folder, its folder (with `/` at both ends), and the name of the file."""
        folder, _, name = f"/{self.object_key}".rpartition("/")
        return not name, f"{folder}/", name or None

    def __repr__(self) -> str:
        return f"OssUriObj({self.uri!r})"


def is_oss_uri(uri: str | bytes) -> bool:
    """True if the text begins as an OSS URI does.

    Example:
        >>> is_oss_uri("oss://models/7/"), is_oss_uri(b"oss://models/7/"), is_oss_uri("./data")
        (True, True, False)
    """
    return uri.startswith("oss://") if isinstance(uri, str) else bytes(uri).startswith(b"oss://")


@checks_keywords
def upload(source_path: str | Path, oss_path: str | OssUriObj, bucket: Any = None, is_tar: bool = False) -> str:
    """Put a file or a folder into OSS.

    Args:
        source_path: a file, or a folder, of which all files are taken.
        oss_path: an OSS URI, or a key in the bucket. It is a folder if a folder is uploaded or `/` is at its end.
        bucket: an `oss2.Bucket`, whose key is used; the default session's bucket otherwise.
        is_tar: upload one file `source.tar.gz` that holds what is at `source_path`.

    Returns:
        The URI of the object or folder.

    Raises:
        InvalidInputError: there is nothing to upload, or `oss_path` cannot be one.
        TransferError: some files could not be uploaded; the others are in place.
    """
    source = parse_path(source_path, "source_path")
    target = _target(oss_path, bucket)
    with _client(bucket) as client:
        if not is_tar:
            return _without_endpoint(transfer.upload(client, source, target))
        with tempfile.TemporaryDirectory(prefix="pai-upload-") as folder:
            archive = Path(folder, _ARCHIVE)
            with tarfile.open(archive, "w:gz") as packed:
                for entry in sorted(source.iterdir()) if source.is_dir() else [source]:
                    packed.add(entry, arcname=entry.name)
            return _without_endpoint(transfer.upload(client, archive, target))


@checks_keywords
def download(oss_path: str | OssUriObj, local_path: str | Path, bucket: Any = None, un_tar: bool = False) -> str:
    """Fetch a file or a folder from OSS into a local folder.

    Args:
        oss_path: an OSS URI, or a key in the bucket.
        local_path: the local folder; made when missing.
        bucket: an `oss2.Bucket`, whose key is used; the default session's bucket otherwise.
        un_tar: unpack a `.tar.gz`. Members that would lie outside of the folder are refused.

    Returns:
        The local file for a single file, else the folder.

    Raises:
        StorageError: nothing is there.
        TransferError: some files could not be fetched; the others are there.
    """
    folder = parse_path(local_path, "local_path")
    source = _target(oss_path, bucket)
    with _client(bucket) as client:
        if not (un_tar and source.name.endswith(".tar.gz")):
            if not source.is_dir and client.head(source) is not None:
                folder.mkdir(parents=True, exist_ok=True)  # the file goes into it, under its own name
            return str(transfer.download(client, source, folder))
        with tempfile.TemporaryDirectory(prefix="pai-download-") as fetched:
            archive = transfer.download(client, source, Path(fetched))
            folder.mkdir(parents=True, exist_ok=True)
            transfer.unpack(archive, folder)
    return str(folder)


def _target(oss_path: str | OssUriObj, bucket: Any) -> OssUri:
    """Returns the URI of a path: a URI is unchanged, a key is in the bucket."""
    if isinstance(oss_path, OssUriObj):
        return OssUri(oss_path.bucket_name, oss_path.object_key, oss_path.endpoint)
    if not isinstance(oss_path, str):
        raise InvalidInputError([wrong_type("oss_path", oss_path, "a string", "a key, or oss://bucket/key")])
    if is_oss_uri(oss_path):
        target = OssUriObj(oss_path)
        return OssUri(target.bucket_name, target.object_key, target.endpoint)
    if bucket is not None:
        return OssUri(bucket.bucket_name, oss_path)
    settings = get_default_session().settings
    settings.require("oss_bucket_name")
    return OssUri(str(settings.oss_bucket_name), oss_path)


@contextmanager
def _client(bucket: Any) -> Iterator[OssClient]:
    """Yields the client of the default session, or one with the endpoint and the key of a bucket."""
    session = get_default_session()
    if bucket is None:
        yield session.files()
        return
    provider = getattr(getattr(bucket, "auth", None), "credentials_provider", None)
    if provider is None:
        hint = "give an oss2.Bucket with oss2.ProviderAuthV4, or session.get_oss_bucket(name)"
        raise InvalidInputError([Problem("bucket", "does not show its key", hint)])
    from pai_sdk._data.storage.oss.client import OssClient

    def key() -> Credentials:
        now = provider.get_credentials()
        return Credentials(now.get_access_key_id(), now.get_access_key_secret(), now.get_security_token() or None)

    region = getattr(bucket, "region", None) or session.settings.region_id
    client = OssClient(bucket.endpoint, key, region=region)
    try:
        yield client
    finally:
        client.close()


def _without_endpoint(uri: OssUri) -> str:
    return f"oss://{uri.bucket}/{uri.key}"
