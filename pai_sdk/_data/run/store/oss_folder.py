"""Sends files to a folder in OSS from a process without pai_sdk.

A pickled `RemoteRun` carries the source of this module and of `_data/storage/oss/v4.py`, which signs. Standard
library only, for Python 3.8 and newer.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import ipaddress
import os
import re
import socket
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, urlsplit

_ID = "ALIBABA_CLOUD_ACCESS_KEY_ID"
_SECRET = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"  # noqa: S105 - the name of a variable
_TOKEN = "ALIBABA_CLOUD_SECURITY_TOKEN"  # noqa: S105 - the name of a variable
_PART_BYTES = 8 << 20
_MAX_PARTS = 9_000  # OSS allows 10,000
_TIMEOUT_S = 60.0
_DEADLINE_S = 60.0
_FIRST_PAUSE_S = 0.2
_MAX_PAUSE_S = 10.0
_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_ERROR_FIELD = re.compile(rb"<(Code|Message)>([^<]{0,500})<")


class Key(NamedTuple):
    """An access key with the attributes that `_data/storage/oss/v4.py` expects."""

    access_key_id: str
    access_key_secret: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"Key({self.access_key_id!r}, ***)"


def key_of_environment() -> Key:
    """Returns the access key of this process. Read for each request, so that a renewed key is used."""
    access_key_id, secret = os.environ.get(_ID), os.environ.get(_SECRET)
    if not access_key_id or not secret:
        raise PermissionError(f"no access key for oss:// in this process; set {_ID} and {_SECRET}")
    return Key(access_key_id, secret, os.environ.get(_TOKEN) or None)


def endpoint_of(location: Mapping[str, str]) -> tuple[str, str]:
    """Returns endpoint (a URL) and region of a location; missing values are read from the environment."""
    region = location.get("region") or os.environ.get("PAI_REGION_ID") or ""
    endpoint = location.get("endpoint") or os.environ.get("PAI_OSS_ENDPOINT") or ""
    if not region:
        match = re.search(r"oss-([a-z0-9-]+?)(-internal)?\.aliyuncs\.com", endpoint)
        if match is None:
            raise RuntimeError("no region for oss:// in this process; set PAI_REGION_ID")
        region = match.group(1)
    endpoint = endpoint or f"https://oss-{region}.aliyuncs.com"
    return (endpoint if "://" in endpoint else f"https://{endpoint}").rstrip("/"), region


class OssFolder:
    """A folder in OSS that files are sent to. A file appears only when it is complete."""

    def __init__(self, location: Mapping[str, str], signing: Any) -> None:
        # `location` has `bucket` and `key`; `endpoint`, `region` and `url` (of an object with an empty key) where
        # they are known. `signing` is a module with `Signer` and `canonical_query`, such as
        # `_data/storage/oss/v4.py`.
        endpoint, region = endpoint_of(location)
        self._bucket, self._prefix = location["bucket"], location["key"]
        self._url = location.get("url") or _url_of(endpoint, self._bucket)
        self._signer = signing.Signer(region)
        self._canonical_query = signing.canonical_query
        # Servers on this machine cannot be reached through a proxy of the environment.
        host = urlsplit(self._url).hostname or ""
        proxies: dict[str, str] | None = {} if host == "localhost" or host.startswith("127.") else None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _NoRedirects())

    def send(self, path: Path, name: str) -> None:
        """Creates or replaces a file; of a growing file, sends the content at the start. Raises OSError."""
        key = self._prefix + name
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            expected = _sha256_of(stream, status.st_size)
            headers = {"x-oss-meta-pai-sha256": expected}
            if status.st_mode & stat.S_IXUSR:
                headers["x-oss-meta-pai-executable"] = "true"
            stream.seek(0)
            if status.st_size > _PART_BYTES:
                self._send_parts(stream, status.st_size, key, headers)
                return
            content = stream.read(status.st_size)
            # The file is read twice. If it was rewritten in between, the checksum in the header would be of other
            # content.
            _check_sha256(expected, hashlib.sha256(content), path)
            self._request("PUT", key, content, headers=headers)

    def _send_parts(self, stream: BinaryIO, size_bytes: int, key: str, headers: Mapping[str, str]) -> None:
        part_bytes = max(_PART_BYTES, -(-size_bytes // _MAX_PARTS))
        _, response = self._request("POST", key, query={"uploads": ""}, headers=headers)
        match = re.search(rb"<UploadId>([^<]+)<", response)
        if match is None:
            raise OSError(f"oss://{self._bucket}/{key}: the server did not start the upload; it may not be OSS")
        upload = {"uploadId": match.group(1).decode()}
        expected, content, parts = headers["x-oss-meta-pai-sha256"], hashlib.sha256(), []
        try:
            for number, start in enumerate(range(0, size_bytes, part_bytes), start=1):
                part = stream.read(min(part_bytes, size_bytes - start))
                content.update(part)
                of_part, _ = self._request("PUT", key, part, query={"partNumber": str(number), **upload})
                parts.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{of_part['etag']}</ETag></Part>")
            _check_sha256(expected, content, Path(stream.name))
            body = f"<CompleteMultipartUpload>{''.join(parts)}</CompleteMultipartUpload>"
            self._complete_upload(key, body.encode(), upload, expected)
        except BaseException:
            # OSS stores, and bills, the parts of an upload that is neither completed nor aborted.
            with contextlib.suppress(OSError):  # the first error is the one to report
                self._request("DELETE", key, query=upload, deadline_s=0)
            raise

    def _complete_upload(self, key: str, body: bytes, upload: Mapping[str, str], sha256: str) -> None:
        try:
            self._request("POST", key, body, query=upload)
        # A repeated request finds no upload if an earlier attempt completed it and its response was lost.
        except FileNotFoundError:
            existing, _ = self._request("HEAD", key)
            if existing.get("x-oss-meta-pai-sha256") != sha256:
                raise

    def _request(
        self,
        method: str,
        key: str,
        body: bytes = b"",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float = _DEADLINE_S,
    ) -> tuple[Mapping[str, str], bytes]:
        """Sends a request; repeats it until the deadline if the failure is transient."""
        deadline, pause_s = time.monotonic() + deadline_s, _FIRST_PAUSE_S
        while True:
            try:
                return self._attempt(method, key, body, query or {}, headers or {})
            except urllib.error.HTTPError as error:
                failure, is_transient = (
                    _refusal(error, f"oss://{self._bucket}/{key}"),
                    error.code in _TRANSIENT_STATUSES,
                )
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                # A repetition cannot fix a missing permission, a wrong certificate or an unknown host name.
                is_transient = not isinstance(
                    reason, (PermissionError, ssl.SSLCertVerificationError, socket.gaierror)
                )
                failure = OSError(f"oss://{self._bucket}/{key}: {type(reason).__name__}: {reason}")
            if not is_transient or time.monotonic() + pause_s > deadline:
                raise failure
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)

    def _attempt(
        self, method: str, key: str, body: bytes, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[Mapping[str, str], bytes]:
        query_string = self._canonical_query(query)
        all_headers = {"host": urlsplit(self._url).netloc, "content-type": "application/octet-stream", **headers}
        if body:
            checksum = hashlib.md5(body)  # noqa: S324 - OSS compares it with what arrives
            all_headers["content-md5"] = base64.b64encode(checksum.digest()).decode()
        # A slash within a key is sent as %2F, so that nothing on the way resolves `..` or `//`.
        self._signer.sign(key_of_environment(), method, f"/{self._bucket}/{quote(key)}", query_string, all_headers)
        url = self._url + quote(key, safe="") + (f"?{query_string}" if query_string else "")
        data = body if method in ("PUT", "POST") else None
        request = urllib.request.Request(url, data=data, headers=all_headers, method=method)  # noqa: S310 - from our client
        with self._opener.open(request, timeout=_TIMEOUT_S) as response:
            return {name.lower(): value for name, value in response.headers.items()}, response.read()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Makes a redirect an error, because a signed request must go to no other host."""


def _refusal(error: urllib.error.HTTPError, uri: str) -> OSError:
    # Only code and message are reported: the body may quote the string that was signed.
    fields = {
        name.decode(): message.decode("utf-8", "replace")
        for name, message in _ERROR_FIELD.findall(error.read(4096))
    }
    error.close()
    message = f"{uri}: HTTP {error.code} {fields.get('Code', '')}: {fields.get('Message', error.reason)}"
    kinds = {403: PermissionError, 404: FileNotFoundError}
    return kinds.get(error.code, OSError)(message)


def _sha256_of(stream: BinaryIO, size_bytes: int) -> str:
    content, remaining = hashlib.sha256(), size_bytes
    while remaining > 0:
        chunk = stream.read(min(remaining, 1 << 20))
        if not chunk:
            break
        content.update(chunk)
        remaining -= len(chunk)
    return content.hexdigest()


def _check_sha256(expected: str, content: Any, path: Path) -> None:
    if content.hexdigest() != expected:
        raise OSError(f"{path} was rewritten while it was read; it is sent by the next sync")


def _url_of(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    try:
        ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        if parts.hostname != "localhost":
            return f"{parts.scheme}://{bucket}.{parts.netloc}/"
    return f"{endpoint}/{bucket}/"
