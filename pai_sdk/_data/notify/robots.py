"""The robots of chat groups: their requests, and their refusals, which arrive with HTTP status 200."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any
from urllib.parse import quote_plus

from pai_sdk._data.notify.messages import Message, as_markdown, as_text, title_of
from pai_sdk._data.notify.post import Post
from pai_sdk._data.notify.refusals import NotDeliveredError

# DingTalk limits the whole request to 20,000 bytes, Feishu to 20 KB, WeCom the Markdown to 4,096 bytes.
_MAX_DINGTALK_BYTES = 16_000
_MAX_FEISHU_BYTES = 16_000
_MAX_WECOM_BYTES = 4096
# After so long, a target that refuses too many messages may accept the next one.
_PAUSE_S = 60.0
_DINGTALK_PAUSE_S = 600.0  # it blocks a robot for 10 minutes

_DINGTALK_BUSY = {-1: None, 130101: _DINGTALK_PAUSE_S}
_FEISHU_BUSY = {11232: _PAUSE_S, 99991400: _PAUSE_S, 18074: None}
_WECOM_BUSY = {-1: None, 45009: _PAUSE_S, 45033: _PAUSE_S}


def dingtalk_post(url: str, secret: str | None, message: Message, now_s: float) -> Post:
    """Returns the request to a robot of DingTalk."""
    markdown = {"title": title_of(message), "text": as_markdown(message, _MAX_DINGTALK_BYTES)}
    return Post(dingtalk_url(url, secret, now_s), {"msgtype": "markdown", "markdown": markdown})


def dingtalk_url(url: str, secret: str | None, now_s: float) -> str:
    """Returns the URL of a request to DingTalk at a time in seconds since 1970, signed for an hour."""
    if secret is None:
        return url
    timestamp = str(round(now_s * 1000))
    digest = hmac.new(secret.encode(), f"{timestamp}\n{secret}".encode(), hashlib.sha256).digest()
    sign = quote_plus(base64.b64encode(digest))
    return f"{url}{'&' if '?' in url else '?'}timestamp={timestamp}&sign={sign}"


def feishu_post(url: str, secret: str | None, message: Message, now_s: float) -> Post:
    """Returns the request to a robot of Feishu or Lark."""
    body: dict[str, Any] = {"msg_type": "text", "content": {"text": as_text(message, _MAX_FEISHU_BYTES)}}
    if secret is not None:
        timestamp = str(int(now_s))
        # Unlike DingTalk's: the text is the key, and the signed message is empty.
        digest = hmac.new(f"{timestamp}\n{secret}".encode(), b"", hashlib.sha256).digest()
        body |= {"timestamp": timestamp, "sign": base64.b64encode(digest).decode()}
    return Post(url, body)


def wecom_post(url: str, message: Message) -> Post:
    """Returns the request to a robot of WeCom."""
    content = as_markdown(message, _MAX_WECOM_BYTES)
    return Post(url, {"msgtype": "markdown", "markdown": {"content": content}})


def check_dingtalk(response: bytes) -> None:
    """Raises NotDeliveredError unless the response of DingTalk has the code 0."""
    _check(response, "DingTalk", ("errcode",), ("errmsg",), _DINGTALK_BUSY)


def check_feishu(response: bytes) -> None:
    """Raises NotDeliveredError unless the response of Feishu has the code 0."""
    _check(response, "Feishu", ("code", "StatusCode"), ("msg", "StatusMessage"), _FEISHU_BUSY)


def check_wecom(response: bytes) -> None:
    """Raises NotDeliveredError unless the response of WeCom has the code 0."""
    _check(response, "WeCom", ("errcode",), ("errmsg",), _WECOM_BUSY)


def _check(
    response: bytes,
    name: str,
    code_fields: tuple[str, ...],
    message_fields: tuple[str, ...],
    busy: dict[int, float | None],
) -> None:
    try:
        body = json.loads(response)
        code = next(int(body[field]) for field in code_fields if field in body)
    except (ValueError, TypeError, StopIteration):
        # A proxy or another service has responded.
        message = f"the response is not one of {name}: it has no {code_fields[0]}"
        raise NotDeliveredError(message, code="InvalidResponse", is_transient=False) from None
    if code == 0:
        return
    text = next((str(body[field]) for field in message_fields if body.get(field)), "")
    raise NotDeliveredError(
        f"{name} refuses it: {text[:200]} [{code}]",
        code=str(code),
        is_transient=code in busy,
        retry_after_s=busy.get(code),
    )
