"""Codes, cookies and keys: each for its server, its time and its use."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from pai_sdk._service.web.browser_keys import SIGNED_IN_S, BrowserKeys, page_secret
from pai_sdk._service.web.host_names import HostNames

SECRET = page_secret("the-secret-of-a-service", 8765)


def access_key_of(keys: BrowserKeys, cookie: str, credential: str, request: str = "") -> str | None:
    session = keys.session_of(cookie, credential, request)
    return None if session is None else session.access_key_id


def signed_in(keys: BrowserKeys) -> tuple[str, str]:
    found = keys.exchange(keys.new_code())
    assert found is not None
    return found


def test_a_code_expires_and_belongs_to_one_server() -> None:
    now = [0.0]
    keys, others = BrowserKeys(clock=lambda: now[0]), BrowserKeys()
    late, good = keys.new_code(), keys.new_code()
    found = keys.exchange(good)
    assert found
    assert access_key_of(keys, *found) == ""
    assert keys.exchange(good) is None
    assert access_key_of(others, *found) is None
    assert others.exchange(keys.new_code()) is None
    now[0] = 61.0
    assert keys.exchange(late) is None
    assert keys.exchange("\udcff") is None


def test_only_the_names_of_a_server_have_origins() -> None:
    names = HostNames(["https://train.example"])
    assert names.origins("127.0.0.1:80") == ["http://127.0.0.1:80"]
    assert names.origins("train.example") == ["https://train.example"]
    assert names.origins("evil.example") == []


def test_a_page_stays_signed_in_when_the_service_is_started_again() -> None:
    cookie, key = signed_in(BrowserKeys(SECRET))
    assert access_key_of(BrowserKeys(SECRET), cookie, key) == ""


@pytest.mark.parametrize(
    "secret",
    [page_secret("the-secret-of-another", 8765), page_secret("the-secret-of-a-service", 8766), None],
    ids=["service", "port", "process"],
)
def test_a_cookie_is_worth_nothing_elsewhere(secret: bytes | None) -> None:
    assert access_key_of(BrowserKeys(secret), *signed_in(BrowserKeys(SECRET))) is None


def test_a_cookie_expires_after_a_week() -> None:
    now = [1_800_000_000.5]
    keys = BrowserKeys(SECRET, now=lambda: now[0])
    cookie, key = signed_in(keys)
    now[0] += SIGNED_IN_S - 1
    assert access_key_of(keys, cookie, key) == ""
    now[0] += 1
    assert access_key_of(keys, cookie, key) is None


def test_a_cookie_cannot_be_changed_nor_used_with_another_key() -> None:
    keys = BrowserKeys(SECRET)
    cookie, key = signed_in(keys)
    _, other_key = signed_in(keys)
    until, session, _, signature = cookie.split(".")
    later, another = f"{int(until) + 1}.{session}..{signature}", f"{until}.{session}.LTAIother.{signature}"
    for changed in (
        later,
        another,
        f"{until}.{session}..{key}",
        f"{until}.{session}..",
        "",
        "..",
        "a.b.c.d",
        cookie + "0",
    ):
        assert access_key_of(keys, changed, key) is None, changed
    for wrong in (other_key, signature, "", "1", key.upper() + "0", "\udcff"):
        assert access_key_of(keys, cookie, wrong) is None, wrong


def test_a_page_is_signed_in_for_the_user_who_made_the_link() -> None:
    keys = BrowserKeys(SECRET)
    assert access_key_of(keys, *(keys.exchange(keys.new_code("LTAIalice")) or ("", ""))) == "LTAIalice"


def test_the_two_signatures_are_no_use_for_each_other() -> None:
    cookie, key = signed_in(BrowserKeys(SECRET))
    assert key not in cookie
    assert cookie.rpartition(".")[2] != key


def test_a_token_is_for_programs() -> None:
    assert BrowserKeys(token="a-token").is_token("a-token")
    assert not BrowserKeys(token="a-token").is_token("another")
    assert not BrowserKeys().is_token("")


def proof(key: str, made_at: int, request: str) -> str:
    signature = hmac.new(key.encode(), f"{made_at} {request}".encode(), hashlib.sha256).hexdigest()
    return f"{made_at}.{signature}"


def test_a_proof_is_for_one_request_and_a_few_minutes() -> None:
    now = [1_800_000_000.0]
    keys = BrowserKeys(SECRET, now=lambda: now[0])
    cookie, key = signed_in(keys)
    _, other_key = signed_in(keys)
    made_at = int(now[0])
    good = proof(key, made_at, "GET /api/v1/runs")
    assert access_key_of(keys, cookie, good, "GET /api/v1/runs") == ""
    for wrong, request in (
        (good, "DELETE /api/v1/runs"),
        (good, "GET /api/v1/runs/other"),
        (proof(other_key, made_at, "GET /api/v1/runs"), "GET /api/v1/runs"),
        (good.replace(str(made_at), str(made_at + 1)), "GET /api/v1/runs"),
        (good[:-1], "GET /api/v1/runs"),
        (proof("", made_at, "GET /api/v1/runs"), "GET /api/v1/runs"),
    ):
        assert access_key_of(keys, cookie, wrong, request) is None, (wrong, request)
    for passed_s, is_valid in ((300, True), (301, False), (-300, True), (-301, False)):
        now[0] = made_at + passed_s
        assert (access_key_of(keys, cookie, good, "GET /api/v1/runs") == "") is is_valid, passed_s
