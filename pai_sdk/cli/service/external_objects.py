"""The store of `pai-sdk serve --objects`: a bucket of S3 or OSS, or of a compatible service."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from pai_sdk._core.config.credentials import CredentialsProvider, default_credentials, static_credentials
from pai_sdk._core.paths import expanded
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.stores.fsspec import FsspecStore
from pai_sdk._data.storage.stores.oss import OssStore
from pai_sdk._data.storage.uri import OssUri, uri_scheme
from pai_sdk.cli.options import OBJECTS_KEY_VARIABLE
from pai_sdk.errors import PaiError, ServiceStartError

# Shorter than the timeouts of clients, so that a client gets an error in time and can retry.
_DEADLINE_S = 4.0
_CONNECT_S, _READ_S = 3, 15


def read_key(file: Path | None) -> tuple[str, str] | None:
    """Reads the key `ID:SECRET` from a file or the environment; returns None without one."""
    # Removed from the environment, because the jobs of the service inherit it.
    text, where = os.environ.pop(OBJECTS_KEY_VARIABLE, ""), OBJECTS_KEY_VARIABLE
    if file is not None:
        try:
            text, where = expanded(file).read_text(encoding="utf-8"), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise ServiceStartError(f"the key in {file} cannot be read: {type(error).__name__}") from error
    if not text:
        return None
    key_id, _, secret = text.strip().partition(":")
    if not (key_id and secret):
        raise ServiceStartError(f"{where} must contain a key as ID:SECRET")
    return key_id, secret


def objects_store(uri: str, *, endpoint: str | None, region: str | None, key: tuple[str, str] | None) -> Store:
    """Opens the store of an `s3://` or `oss://` URI, in which a service keeps the contents of its objects."""
    retry = RetryPolicy(deadline_s=_DEADLINE_S)
    try:  # without `key`, the keys of the tools of AWS or Alibaba Cloud on this machine are used
        if uri_scheme(uri) == "s3":
            return _s3_store(uri, endpoint, region, key, retry)
        return _oss_store(uri, endpoint, region, key, retry)
    except PaiError as error:
        raise ServiceStartError(f"--objects cannot be used: {error}") from error


def _s3_store(
    uri: str, endpoint: str | None, region: str | None, key: tuple[str, str] | None, retry: RetryPolicy
) -> Store:
    key_id, secret = key or (None, None)
    config = {"connect_timeout": _CONNECT_S, "read_timeout": _READ_S, "retries": {"max_attempts": 0}}
    return FsspecStore(
        uri,
        {
            "key": key_id,
            "secret": secret,
            "client_kwargs": {"endpoint_url": endpoint, "region_name": region},
            "config_kwargs": config,
            "skip_instance_cache": True,
            "retry": retry,
        },
    )


def _oss_store(
    uri: str, endpoint: str | None, region: str | None, key: tuple[str, str] | None, retry: RetryPolicy
) -> Store:
    if endpoint is None:
        raise typer.BadParameter("oss:// needs it.", param_hint="--objects-endpoint")
    credentials: CredentialsProvider = static_credentials(*key) if key else default_credentials()
    client = OssClient(
        endpoint,
        credentials,
        region=region,
        retry=retry,
        connect_timeout_s=_CONNECT_S,
        read_timeout_s=_READ_S,
    )
    return OssStore(client, OssUri.parse(uri))
