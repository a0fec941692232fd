"""Targets of notifications: how they are named, what they send, and which refusals they report."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.notify import http_post, targets
from pai_sdk._data.notify.guard import AddressGuard
from pai_sdk._data.notify.messages import Message, as_markdown, as_text, truncated_bytes
from pai_sdk._data.notify.refusals import NotDeliveredError
from pai_sdk._data.notify.targets import DingTalk, Feishu, Target, Webhook, WeCom, target_from_wire, target_of
from pai_sdk.errors import InvalidInputError
from tests.support.waiting import PATIENCE_S
from tests.unit.client.api.scripted_server import Asked, Reply, Reset, ScriptedServer, unused_endpoint
from tests.unit.data.notify.smtp_server import SmtpServer

MESSAGE = Message(
    "demo: Failed", "JobFailed", "Memory ran out.", "http://page/x", ("first", "last"), {"job_id": "t1"}
)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def refusal_of(target: Target, guard: AddressGuard | None = None) -> NotDeliveredError:
    with pytest.raises(NotDeliveredError) as caught:
        target.deliver(MESSAGE, *([guard] if guard else []))
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


# ---- names


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://hooks.example.com/x", Webhook("https://hooks.example.com/x")),
        (
            "https://oapi.dingtalk.com/robot/send?access_token=a#secret=SEC1&on=failed,watch",
            DingTalk("https://oapi.dingtalk.com/robot/send?access_token=a", "SEC1", on=["failed", "watch"]),
        ),
        (
            "https://oapi.dingtalk.com/robot/send?access_token=a&secret=SEC1",
            DingTalk("https://oapi.dingtalk.com/robot/send?access_token=a", "SEC1"),
        ),
        (
            "https://open.feishu.cn/open-apis/bot/v2/hook/a#secret=b",
            Feishu("https://open.feishu.cn/open-apis/bot/v2/hook/a", "b"),
        ),
        (
            "https://open.larksuite.com/open-apis/bot/v2/hook/a",
            Feishu("https://open.larksuite.com/open-apis/bot/v2/hook/a"),
        ),
        (
            "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=a",
            WeCom("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=a"),
        ),
        ("wecom+http://127.0.0.1:9/send?key=a", WeCom("http://127.0.0.1:9/send?key=a")),
        ("lark+http://127.0.0.1:9/hook", Feishu("http://127.0.0.1:9/hook")),
        ("mailtos://u:p@example.com#on=failed", targets.AppriseTarget("mailtos://u:p@example.com", on=["failed"])),
        ("slack://A/B/C/#general", targets.AppriseTarget("slack://A/B/C/#general")),
        (
            "https://hooks.slack.com/services/A/B/C",
            targets.AppriseTarget("https://hooks.slack.com/services/A/B/C"),
        ),
    ],
)
def test_a_url_is_a_target(url: str, expected: Target) -> None:
    target = target_of(url)
    assert target == expected
    assert target_from_wire(target.to_wire()) == target
    assert pickle.loads(pickle.dumps(target)) == target


@pytest.mark.parametrize(
    "value",
    ["", "hooks.example.com", "http://", 7, "https://a/#secret=b", "https://a#on=never", "http://[::1", "a://["],
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        target_of(value)


def test_nothing_secret_is_displayed() -> None:
    all_targets = [
        target_of(url)
        for url in (
            "https://h/hunter2",
            "https://oapi.dingtalk.com/robot/send?access_token=hunter2#secret=hunter2",
            "mailtos://hunter2:hunter2@example.com",
            "slack://hunter2/hunter2",
        )
    ]
    all_targets.append(Webhook("https://h/x", {"Authorization": "hunter2"}))
    assert "hunter2" not in repr(all_targets)
    assert "hunter2" not in repr([target.to_wire() for target in all_targets])


# ---- requests


def test_the_body_of_a_webhook(server: ScriptedServer) -> None:
    Webhook(f"{server.endpoint}/a", {"X-Token": "t"}).deliver(MESSAGE)
    (request,) = server.asked
    assert request.headers["x-token"] == "t"
    assert request.json == {
        "job_id": "t1",
        "title": "demo: Failed",
        "code": "JobFailed",
        "message": "Memory ran out.",
        "url": "http://page/x",
        "lines": ["first", "last"],
    }
    assert Message.from_json(request.json).to_json() == request.json


def dingtalk(request: Asked) -> Reply:
    """Answers as DingTalk does to a robot with a signature."""
    text = f"{request.query['timestamp']}\nSEC".encode()
    sign = base64.b64encode(hmac.new(b"SEC", text, hashlib.sha256).digest()).decode()
    is_right = request.query["sign"] == sign and abs(time.time() * 1000 - int(request.query["timestamp"])) < 3.6e6
    return Reply({"errcode": 0 if is_right else 310000, "errmsg": "ok" if is_right else "sign not match"})


def feishu(request: Asked) -> Reply:
    """Answers as Feishu does: the text is the key of the signature."""
    key = f"{request.json['timestamp']}\nSEC".encode()
    sign = base64.b64encode(hmac.new(key, digestmod=hashlib.sha256).digest()).decode()
    is_right = request.json["sign"] == sign and abs(time.time() - int(request.json["timestamp"])) < 3600
    return Reply({"code": 0, "msg": "success"} if is_right else {"code": 19021, "msg": "sign match fail"})


@pytest.mark.parametrize(("kind", "answer"), [(DingTalk, dingtalk), (Feishu, feishu)])
def test_signatures(
    server: ScriptedServer, kind: type[DingTalk] | type[Feishu], answer: Callable[[Asked], Reply]
) -> None:
    server.answer = answer
    kind(f"{server.endpoint}/robot?x=y", "SEC").deliver(MESSAGE)
    error = refusal_of(kind(f"{server.endpoint}/robot?x=y", "wrong"))
    assert error.code in ("310000", "19021")
    assert not error.is_transient


@pytest.mark.parametrize(
    ("kind", "body", "is_transient"),
    [
        ("dingtalk", {"errcode": 310000, "errmsg": "keywords not in content"}, False),
        ("dingtalk", {"errcode": 130101, "errmsg": "send too fast"}, True),
        ("dingtalk", {"errcode": -1, "errmsg": "busy"}, True),
        ("feishu", {"code": 19024, "msg": "Key Words Not Found"}, False),
        ("feishu", {"code": 11232, "msg": "frequency limited"}, True),
        ("wecom", {"errcode": 93000, "errmsg": "invalid webhook url"}, False),
        ("wecom", {"errcode": 45009, "errmsg": "api freq out of limit"}, True),
        ("wecom", {"errcode": 40058, "errmsg": "exceed max length"}, False),
    ],
)
def test_refusals_with_status_200(
    server: ScriptedServer, kind: str, body: dict[str, Any], is_transient: bool
) -> None:
    server.script = [Reply(body)]
    error = refusal_of(target_of(f"{kind}+{server.endpoint}/hunter2"))
    code = body.get("errcode", body.get("code"))
    assert (error.code, error.is_transient) == (str(code), is_transient)
    assert str(body.get("errmsg", body.get("msg"))) in str(error)


@pytest.mark.parametrize("body", [b"<html>login</html>", {}, b"", [1], {"errcode": "?"}])
@pytest.mark.parametrize("kind", ["dingtalk", "feishu", "wecom"])
def test_a_response_of_another_service_is_no_success(server: ScriptedServer, kind: str, body: Any) -> None:
    server.script = [Reply(body)]
    assert refusal_of(target_of(f"{kind}+{server.endpoint}/hunter2")).code == "InvalidResponse"


def test_robots_accept(server: ScriptedServer) -> None:
    server.script = [Reply({"errcode": 0}), Reply({"StatusCode": 0}), Reply({"errcode": 0, "errmsg": "ok"})]
    for kind in ("dingtalk", "feishu", "wecom"):
        target_of(f"{kind}+{server.endpoint}/robot").deliver(MESSAGE)
    texts = [request.body.decode() for request in server.asked]
    assert all("Memory ran out." in text and "last" in text and "pai-sdk" in text for text in texts)


def test_a_busy_target_names_its_pause(server: ScriptedServer) -> None:
    server.script = [Reply({}, 429, {"Retry-After": "7"})]
    error = refusal_of(Webhook(f"{server.endpoint}/hunter2"))
    assert (error.code, error.is_transient, error.retry_after_s) == ("HTTP429", True, 7.0)


def test_redirects_are_not_followed(server: ScriptedServer) -> None:
    server.script = [Reply({}, 302, {"Location": f"{server.endpoint}/other"})]
    error = refusal_of(Webhook(f"{server.endpoint}/hunter2"))
    assert (error.code, error.is_transient) == ("HTTP302", False)
    assert len(server.asked) == 1


def test_a_peer_that_closes_or_does_not_listen(server: ScriptedServer) -> None:
    server.script = [Reset]
    assert refusal_of(Webhook(f"{server.endpoint}/hunter2")).code == "NoResponse"
    assert refusal_of(Webhook(f"{unused_endpoint()}/hunter2")).is_transient


def test_a_failed_handshake_has_its_reason(server: ScriptedServer) -> None:
    error = refusal_of(Webhook(f"{server.endpoint.replace('http:', 'https:')}/hunter2"))
    assert error.code == "NoResponse"
    assert "TLS" in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("drips", [False, True])
def test_a_peer_that_hangs_costs_no_more_than_the_deadline(drips: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 200 OK\r\n")
            while not done.wait(0.05):
                try:
                    peer.sendall(b"X-A: b\r\n" if drips else b"")
                except OSError:
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    started_at = time.monotonic()
    post = http_post.Post(f"http://127.0.0.1:{listener.getsockname()[1]}/hunter2", {})
    with pytest.raises(NotDeliveredError) as caught:
        http_post.send_post(post, timeout_s=0.4)
    assert (caught.value.code, caught.value.is_transient) == ("Timeout", True)
    assert time.monotonic() - started_at < PATIENCE_S / 2
    done.set()
    thread.join(PATIENCE_S)
    listener.close()


def test_an_endless_response_is_not_read(server: ScriptedServer) -> None:
    server.script = [Reply(b"x" * (8 << 20))]
    Webhook(server.endpoint).deliver(MESSAGE)


# ---- texts


@pytest.mark.parametrize("size", [300, 2048, 4096])
@pytest.mark.parametrize("render", [as_markdown, as_text])
def test_texts_fit_and_have_whole_characters(render: Callable[[Message, int], str], size: int) -> None:
    lines = [f"第 {number} 行 😀 loss={number}" for number in range(200)]
    text = render(Message("训练" * 500, "JobFailed", "原因" * 2000, "http://page", lines, {"job_id": "t1"}), size)
    assert len(text.encode()) <= size
    assert "\ufffd" not in text
    assert text.endswith("pai-sdk")
    short = render(Message("t", "JobFailed", "r", None, lines), size)
    assert "loss=199" in short
    assert len(short.encode()) <= size


@pytest.mark.parametrize("size", range(3, 20))
def test_a_text_is_cut_between_characters(size: int) -> None:
    text = truncated_bytes("😀é訓a" * 3, size)
    assert len(text.encode()) <= size
    assert "😀é訓a".startswith(text[:-1]) or text[:-1] in "😀é訓a" * 3


def test_a_log_line_mentions_nobody_and_moves_no_cursor() -> None:
    lines = ['<at user_id="all">x</at>', "<@all>", "<!channel>", "\x1b[2Jred\x1b[31m", "10%\r20%"]
    for render in (as_markdown, as_text):
        text = render(Message("t", "c", "<@all>", None, lines), 4096)
        assert "<at" not in text
        assert "<@" not in text
        assert "<!" not in text
        assert "\x1b" not in text
        assert "10%" not in text


def test_further_messages_are_folded_into_one() -> None:
    folded = MESSAGE.with_more([f"job {number}: Failed" for number in range(30)])
    assert folded.to_json()["folded"] == 30
    assert "job 0: Failed" in as_text(folded, 4096)


# ---- addresses


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.100.100.200", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1", "192.0.2.1", "x"),
    ],
)
def test_addresses_that_a_service_refuses(address: str) -> None:
    assert not AddressGuard().is_allowed(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_public_addresses(address: str) -> None:
    assert AddressGuard().is_allowed(address)


def test_what_an_operator_allows(server: ScriptedServer) -> None:
    refusal = refusal_of(Webhook(f"{server.endpoint}/hunter2"), AddressGuard())
    assert (refusal.code, refusal.is_transient) == ("AddressNotAllowed", False)
    assert server.asked == []
    for allowed in ("127.0.0.0/8", "127.0.0.1"):
        Webhook(server.endpoint).deliver(MESSAGE, AddressGuard.of([allowed]))
    Webhook(server.endpoint.replace("127.0.0.1", "localhost")).deliver(MESSAGE, AddressGuard.of(["LocalHost."]))
    Webhook(server.endpoint).deliver(MESSAGE, AddressGuard(allows_private=True))
    assert not AddressGuard(allows_private=True).is_allowed("169.254.169.254")
    assert refusal_of(Webhook(f"{server.endpoint}/hunter2"), AddressGuard.of(["10.0.0.0/8"])).code


def test_a_name_is_resolved_once(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name whose second answer is another address (DNS rebinding)."""
    port = int(server.endpoint.rpartition(":")[2])
    answers = [("8.8.8.8", port), ("127.0.0.1", port)]
    lookups = []

    def getaddrinfo(host: str, *_: Any, **__: Any) -> Any:
        lookups.append(host)
        answer = answers[min(len(lookups), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", answer)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    connected = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: connected.append(address) or refuse())

    def refuse() -> None:
        raise ConnectionRefusedError

    assert refusal_of(Webhook(f"http://rebind.example.com:{port}/hunter2"), AddressGuard()).code == "NoResponse"
    assert connected == [("8.8.8.8", port)]
    answers[:] = [("8.8.8.8", port), ("127.0.0.1", port)]
    lookups.append("")
    assert (
        refusal_of(Webhook(f"http://rebind.example.com:{port}/hunter2"), AddressGuard()).code
        == "AddressNotAllowed"
    )
    assert server.asked == []


def test_through_a_proxy_of_the_environment(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.endpoint)
    monkeypatch.delenv("no_proxy", raising=False)
    Webhook("http://8.8.8.8/hook").deliver(MESSAGE, AddressGuard())
    assert server.asked[0].path == "/hook"
    assert refusal_of(Webhook("http://10.0.0.1/hunter2"), AddressGuard()).code == "AddressNotAllowed"
    assert len(server.asked) == 1


# ---- Apprise


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    server = SmtpServer()
    yield server
    server.close()


def mail(port: int) -> Target:
    return target_of(f"mailto://127.0.0.1:{port}?from=hunter2@example.com&to=b@example.com&mode=insecure")


def test_an_e_mail(smtp: SmtpServer) -> None:
    mail(smtp.port).deliver(MESSAGE, AddressGuard.of(["127.0.0.1"]))
    (text,) = smtp.messages
    assert "Subject: demo: Failed" in text
    content = text if "Memory" in text else base64.b64decode(text.split("\r\n\r\n", 1)[1]).decode()
    assert "Memory ran out." in content


def test_an_e_mail_that_is_refused() -> None:
    server = SmtpServer(refusal="550 no such sender")
    try:
        error = refusal_of(mail(server.port))
    finally:
        server.close()
    assert error.code == "NotDelivered"


def test_apprise_is_guarded_too(smtp: SmtpServer) -> None:
    error = refusal_of(mail(smtp.port), AddressGuard())
    assert (error.code, error.is_transient) == ("AddressNotAllowed", False)
    assert smtp.connections == 0


def test_apprise_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pai_sdk._data.notify.apprise_sender.find_spec", lambda name: None)
    error = refusal_of(target_of("mailto://example.com"))
    assert (error.code, error.is_transient) == ("MissingExtra", False)


def test_slack_is_told_by_apprise(server: ScriptedServer) -> None:
    """The generic JSON of Apprise stands for Slack, whose host is fixed."""
    server.script = [Reply({}, 404)]
    url = server.endpoint.replace("http://", "json://") + "/hunter2"
    error = refusal_of(target_of(url))
    assert error.code == "HTTP404"
    server.script = [Reply({})]
    target_of(url).deliver(MESSAGE)
    assert "Memory ran out." in json.dumps(server.asked[-1].json)


def test_a_url_that_apprise_does_not_understand() -> None:
    assert refusal_of(target_of("nonsense://hunter2")).code == "InvalidUrl"


def test_what_a_service_never_runs() -> None:
    assert refusal_of(target_of("dbus://"), AddressGuard()).code == "InvalidUrl"


def test_a_name_that_is_not_resolved_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: done.wait(PATIENCE_S) and [])
    post = http_post.Post("http://hooks.example.com/hunter2", {})
    started_at = time.monotonic()
    with pytest.raises(NotDeliveredError) as caught:
        http_post.send_post(post, timeout_s=0.2)
    done.set()
    assert caught.value.is_transient
    assert time.monotonic() - started_at < PATIENCE_S / 2


def test_no_password_of_the_machine_is_sent(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    Webhook(server.endpoint).deliver(MESSAGE)
    Webhook(server.endpoint, {"Authorization": "Bearer mine"}).deliver(MESSAGE)
    assert [request.headers.get("authorization") for request in server.asked] == [None, "Bearer mine"]


@pytest.mark.parametrize("scheme", ["dingtalk", "feishu", "lark", "wecom", "wecombot"])
def test_robots_are_named_by_their_webhooks(scheme: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        target_of(f"{scheme}://a-secret")
    (problem,) = caught.value.problems
    assert "https://" in (problem.hint or "")
    assert "a-secret" not in str(caught.value)
