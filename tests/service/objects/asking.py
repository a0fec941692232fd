"""Requests put to the application itself, byte by byte: what no client would send, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from pai_sdk._service.oss.oss_app import ObjectApp
from pai_sdk._service.oss.oss_auth import signature_v4, signing_key_v4
from pai_sdk._service.oss.oss_request import read_request
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk.errors import StorageError
from tests.service.objects.serving import KEY_ID, REGION, SECRET


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


class Asking:
    """Asks a store, with a signature that is right for whatever is asked."""

    def __init__(self, store: ObjectStore) -> None:
        self._app = ObjectApp(store, {KEY_ID: SECRET}, region=REGION)

    async def ask(
        self,
        method: str,
        path: bytes,
        query: bytes = b"",
        headers: Mapping[bytes, bytes] | None = None,
        body: bytes = b"",
        *,
        signed: bool = True,
    ) -> Answer:
        date = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
        given = [(b"host", b"x"), (b"x-oss-date", date.encode()), *(headers or {}).items()]
        if body and not any(name == b"content-length" for name, _ in given):
            given.append((b"content-length", str(len(body)).encode()))
        scope = {
            "type": "http",
            "method": method,
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "headers": given,
        }
        if signed:
            given += _signature(scope, date)
        messages = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]
        sent: list[dict] = []

        async def receive() -> dict:
            return messages.pop(0)

        async def send(message: dict) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], dict(sent[0]["headers"]), content)


def _signature(scope: dict, date: str) -> list[tuple[bytes, bytes]]:
    try:
        request = read_request(scope, lambda: None)
    except StorageError:
        return [(b"authorization", f"OSS {KEY_ID}:none".encode())]  # it cannot even be read
    where = f"{date[:8]}/{REGION}/oss/aliyun_v4_request"
    key = signing_key_v4(SECRET, where)
    signature = signature_v4(request.signed, key, scope=where, date=date, also_signed=[])
    value = f"OSS4-HMAC-SHA256 Credential={KEY_ID}/{where},Signature={signature}"
    return [(b"authorization", value.encode())]
