"""No request is accepted twice: within a process, across a restart, and when there are too many to remember."""

from __future__ import annotations

import base64
import errno
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import oss2
import pytest
import requests

from pai_sdk._service.http.nonces import NonceMemory
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client
from tests.support.waiting import PATIENCE_S

LIFE_S = 900.0


@contextmanager
def remembering(path: Path, most: int = 100) -> Iterator[Callable[..., bool]]:
    """A memory, asked at the time of the request's date, or at another one; its other clock follows this one."""
    now_s = 0.0
    memory = NonceMemory(lifetime_s=LIFE_S, path=path, max_nonces=most, elapsed_s=lambda: now_s)

    def accept(nonce: str, dated: float, now: float | None = None) -> bool:
        nonlocal now_s
        now_s = dated if now is None else now
        return memory.accept(nonce, dated=dated, now=now_s)

    try:
        yield accept
    finally:
        memory.close()


def recorded(client: Client) -> list[requests.PreparedRequest]:
    """Requests as a listener on the way sees them."""
    sent: list[requests.PreparedRequest] = []
    for method, path in (("GET", "/workspaces"), ("DELETE", "/trainingjobs/trainnone")):
        sent.append(client.call(method, path).request)
    return sent


def test_what_was_sent_before_a_restart_is_refused_after_it(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor()) as client:
        sent = recorded(client)
    with start(ScriptedExecutor()) as client, requests.Session() as listener:
        for request in sent:
            answer = listener.send(request, timeout=PATIENCE_S)
            assert (answer.status_code, answer.json()["Code"]) == (403, "SignatureNonceUsed")
        assert client.get("/workspaces")["TotalCount"] == 1


@pytest.mark.parametrize("auth", [oss2.Auth, oss2.AuthV4])
def test_an_upload_may_come_twice_but_not_with_another_body_than_was_signed(service: Client, auth: type) -> None:
    """As docs/serving.md says: an answer may be lost, and OSS's clients then send the very same request again."""
    key = auth(service.info.access_key_id, service.info.access_key_secret)
    info = service.info
    bucket = oss2.Bucket(key, info.oss_endpoint, info.bucket, region=info.region_id)
    md5 = base64.b64encode(hashlib.md5(b"first").digest()).decode()
    sent = bucket.put_object("overheard", b"first", headers={"Content-MD5": md5}).resp.response.request
    bucket.put_object("overheard", b"second")
    with requests.Session() as listener:
        for body, without, status in (
            (b"wrong", (), 400),
            (b"wrong", ("Content-MD5",), 403),
            (b"first", (), 200),
        ):
            headers = {name: value for name, value in sent.headers.items() if name not in without}
            answer = listener.put(sent.url, data=body, headers=headers, timeout=PATIENCE_S)
            assert answer.status_code == status
            assert bucket.get_object("overheard").read() == (b"first" if status == 200 else b"second")


def test_a_nonce_counts_once_as_long_as_its_date_would_be_accepted(tmp_path: Path) -> None:
    path = tmp_path / "nonces"
    with remembering(path) as accept:
        assert accept("a", 6000.0)
        assert not accept("a", 6000.0, 6000.0 + LIFE_S)
    with remembering(path) as accept:
        assert not accept("a", 6000.0, 6001.0)
        assert accept("b", 6000.0, 6001.0)
    with remembering(path) as accept:
        assert not accept("b", 6000.0, 6002.0)


def test_what_can_no_longer_be_accepted_is_forgotten_and_the_file_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "nonces"
    with remembering(path, most=5000) as accept:
        for number in range(20_000):
            assert accept(str(number), number * 1.0)
    assert path.stat().st_size < 200_000
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_is_put_forward_and_back_opens_no_window(tmp_path: Path, is_restarted: bool) -> None:
    elapsed_s, now, hour = 100.0, 1_000_000.0, 3600.0
    path = tmp_path / "nonces"

    def opened() -> NonceMemory:
        return NonceMemory(lifetime_s=LIFE_S, path=path, elapsed_s=lambda: elapsed_s)

    memory = opened()
    assert memory.accept("overheard", dated=now, now=now)
    if is_restarted:
        memory.close()
        memory = opened()
    assert memory.accept("meanwhile", dated=now + hour, now=now + hour)
    elapsed_s += LIFE_S
    assert not memory.accept("overheard", dated=now, now=now + LIFE_S)
    elapsed_s += LIFE_S + 1
    assert memory.accept("later", dated=now + hour, now=now + hour)
    assert memory._count == 2  # what counts no more is forgotten
    memory.close()


def test_over_the_limit_the_earliest_are_refused_and_not_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "nonces"
    with remembering(path, most=3) as accept:
        assert all(accept(nonce, dated) for nonce, dated in (("a", 600.0), ("b", 660.0), ("c", 720.0)))
        assert accept("d", 780.0)  # one too many: all of the first minute go
        assert not accept("a", 600.0, 780.0)
        assert not accept("never seen", 659.0, 780.0)
        assert accept("e", 720.0, 780.0)
    with remembering(path, most=3) as accept:
        assert not accept("a", 600.0, 780.0)


def test_a_record_that_was_cut_off_spoils_none_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "nonces"
    with remembering(path) as accept:
        assert accept("a", 6000.0)
    with path.open("ab") as file:
        file.write(b"half")
    with remembering(path) as accept:
        assert not accept("a", 6000.0)
        assert accept("b", 6000.0)
    with remembering(path) as accept:
        assert not accept("b", 6000.0)


def test_a_full_disk_costs_no_request_and_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nonces"
    elapsed_s = 0.0
    memory = NonceMemory(lifetime_s=LIFE_S, path=path, elapsed_s=lambda: elapsed_s)

    class Full:
        def write(self, record: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None: ...

    memory._close()
    monkeypatch.setattr(memory, "_file", Full())
    assert memory.accept("a", dated=6000.0, now=6000.0)
    assert not memory.accept("a", dated=6000.0, now=6001.0)
    elapsed_s = 60.0
    assert memory.accept("b", dated=6000.0, now=6000.0)  # there is space again, whatever the clock says
    memory.close()
    with remembering(path) as accept:
        assert not accept("a", 6000.0, 6061.0)
        assert not accept("b", 6000.0, 6061.0)
