"""The targets of notifications, as values: webhooks, the robots of chat groups, and the URLs of Apprise.

`docs/notify.md` and `docs/reference/jobs.md` name them all.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.notify import robots
from pai_sdk._data.notify.apprise_sender import send_by_apprise
from pai_sdk._data.notify.guard import UNGUARDED, AddressGuard
from pai_sdk._data.notify.http_post import send_post
from pai_sdk._data.notify.messages import Message
from pai_sdk._data.notify.post import Post
from pai_sdk._data.notify.refusals import NotDeliveredError
from pai_sdk._wire.notifications import NotificationTarget
from pai_sdk.errors import InvalidInputError, Problem

OCCASIONS = ("succeeded", "failed", "stopped", "watch")
"""The occasions of messages: the outcomes of a job, and what the rules of a service detect."""

_RETRY = RetryPolicy(deadline_s=30.0, max_attempts=5)
_MAX_URL_LENGTH = 4096
_OPTION = re.compile(r"#((?:on|secret)=[^#]*)$")


@runtime_checkable
class Notification(Protocol):
    """A target of messages about jobs. A class of your own is used by the process that waits for the job."""

    def send(self, message: Mapping[str, Any], /) -> None:
        """Send a message.

        Args:
            message: `title`, `code`, `message`, `url`, `lines`, `job_id`, `name`, `status`, `duration_s` and
                `reason_code`; None if unknown.

        Raises:
            Exception: it could not be sent; the error is logged.
        """
        ...


@dataclass(frozen=True)
class Target:
    """A target that is a URL. It may be secret, so only its host is displayed."""

    url: str = field(repr=False)
    on: Sequence[str] | None = field(default=None, kw_only=True)

    kind: ClassVar[str] = "webhook"
    is_in_plans: ClassVar[bool] = True  # which the submitter checks without an import of this module

    def __post_init__(self) -> None:
        self._check_url()
        if self.on is not None:
            values = [self.on] if isinstance(self.on, str) else list(self.on)
            if unknown := [value for value in values if value not in OCCASIONS]:
                hint = f"use {', '.join(OCCASIONS)}"
                raise InvalidInputError([Problem("on", f"has no value {str(unknown[0])[:40]!r}", hint)])
            object.__setattr__(self, "on", tuple(values))

    def __repr__(self) -> str:
        on = "" if self.on is None else f", on={list(self.on)!r}"
        return f"{type(self).__name__}({masked_url(self.url)!r}{on})"

    def wants(self, occasion: str) -> bool:
        """Whether messages of an occasion are sent to this target; by default all are."""
        return self.on is None or occasion in self.on

    def send(self, message: Mapping[str, Any], /) -> None:
        """Send a message; repeated for half a minute while the target is unreachable or busy."""
        content = Message.from_json(message)
        _RETRY.call(
            lambda: self.deliver(content),
            is_transient=lambda error: isinstance(error, NotDeliveredError) and error.is_transient,
        )

    def deliver(self, message: Message, guard: AddressGuard = UNGUARDED) -> None:
        """Send a message by one attempt; raises NotDeliveredError."""
        self._check_response(send_post(self._post(message), guard))

    def to_wire(self) -> NotificationTarget:
        """The target in the request to a service of this package, with its secrets."""
        on = None if self.on is None else list(self.on)
        secret, headers = getattr(self, "secret", None), getattr(self, "headers", None)
        return NotificationTarget(
            kind=self.kind, url=self.url, secret=secret, headers=dict(headers) if headers else None, on=on
        )

    def _check_url(self) -> None:
        parts = _split(self.url) if isinstance(self.url, str) and len(self.url) <= _MAX_URL_LENGTH else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError([Problem("url", "is not the URL of a webhook", "it starts with https://")])

    def _post(self, message: Message) -> Post:
        raise NotImplementedError

    def _check_response(self, response: bytes) -> None:
        """Raises NotDeliveredError if the body of the response is a refusal."""


@dataclass(frozen=True, repr=False)
class Webhook(Target):
    """Sends the fields of a message as JSON by POST.

    Attributes:
        url: the URL of the receiver. Its path and query may be secret, so only the host is displayed.
        headers: additional headers, such as one with a token.
        on: the occasions: `succeeded`, `failed`, `stopped`, `watch`; all by default.

    Example:
        >>> Webhook("https://hooks.example.com/T0/a-secret")
        Webhook('https://hooks.example.com/…')
    """

    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def _post(self, message: Message) -> Post:
        return Post(self.url, message.to_json(), self.headers or {})


@dataclass(frozen=True, repr=False)
class DingTalk(Target):
    """Sends a message to a DingTalk group, by its robot.

    Attributes:
        url: of the robot, with its `access_token`.
        secret: of the robot, if its security setting is a signature (`SEC…`).
        on: the occasions: `succeeded`, `failed`, `stopped`, `watch`; all by default.

    Example:
        >>> DingTalk("https://oapi.dingtalk.com/robot/send?access_token=abc", "SECxyz")
        DingTalk('https://oapi.dingtalk.com/…')
    """

    secret: str | None = field(default=None, repr=False)
    kind: ClassVar[str] = "dingtalk"

    def signed_url(self, now_s: float) -> str:
        """The URL for one request.

        Args:
            now_s: seconds since 1970.

        Example:
            >>> DingTalk("https://d.example.com/send?access_token=a", "SEC").signed_url(1.0)[:58]
            'https://d.example.com/send?access_token=a&timestamp=1000&s'
        """
        return robots.dingtalk_url(self.url, self.secret, now_s)

    def _post(self, message: Message) -> Post:
        # A signature is valid for an hour, so each attempt signs anew.
        return robots.dingtalk_post(self.url, self.secret, message, time.time())

    def _check_response(self, response: bytes) -> None:
        robots.check_dingtalk(response)


@dataclass(frozen=True, repr=False)
class Feishu(Target):
    """Sends a message to a group of Feishu or Lark, by its robot.

    Attributes:
        url: of the robot.
        secret: of the robot, if its security setting is a signature.
        on: the occasions: `succeeded`, `failed`, `stopped`, `watch`; all by default.

    Example:
        >>> Feishu("https://open.feishu.cn/open-apis/bot/v2/hook/abc", "xyz", on=["failed"])
        Feishu('https://open.feishu.cn/…', on=['failed'])
    """

    secret: str | None = field(default=None, repr=False)
    kind: ClassVar[str] = "feishu"

    def _post(self, message: Message) -> Post:
        return robots.feishu_post(self.url, self.secret, message, time.time())

    def _check_response(self, response: bytes) -> None:
        robots.check_feishu(response)


@dataclass(frozen=True, repr=False)
class WeCom(Target):
    """Sends a message to a WeCom group, by its robot.

    Attributes:
        url: of the robot, with its `key`.
        on: the occasions: `succeeded`, `failed`, `stopped`, `watch`; all by default.

    Example:
        >>> WeCom("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=abc")
        WeCom('https://qyapi.weixin.qq.com/…')
    """

    kind: ClassVar[str] = "wecom"

    def _post(self, message: Message) -> Post:
        return robots.wecom_post(self.url, message)

    def _check_response(self, response: bytes) -> None:
        robots.check_wecom(response)


@dataclass(frozen=True, repr=False)
class AppriseTarget(Target):
    """Sends a message by Apprise: e-mail (`mailtos://…`), Slack, and other URLs that Apprise understands."""

    kind: ClassVar[str] = "apprise"

    def deliver(self, message: Message, guard: AddressGuard = UNGUARDED) -> None:
        """Send a message by one attempt; raises NotDeliveredError."""
        send_by_apprise(self.url, message, guard)

    def _check_url(self) -> None:
        if not isinstance(self.url, str) or len(self.url) > _MAX_URL_LENGTH or not _split(self.url).scheme:
            raise InvalidInputError([Problem("url", "is not a URL", "such as mailtos://… or slack://…")])
        scheme = urlsplit(self.url).scheme
        if webhook := _WEBHOOKS.get(scheme):
            # Apprise reports messages that these robots refuse as sent.
            problem = f"a target cannot start with {scheme}://"
            raise InvalidInputError([Problem("url", problem, f"give the webhook of the robot: {webhook}")])


_WECOM_WEBHOOK = "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…"
_WEBHOOKS = {
    "dingtalk": "https://oapi.dingtalk.com/robot/send?access_token=…",
    "feishu": "https://open.feishu.cn/open-apis/bot/v2/hook/…",
    "lark": "https://open.larksuite.com/open-apis/bot/v2/hook/…",
    "wecom": _WECOM_WEBHOOK,
    "wecombot": _WECOM_WEBHOOK,
}
_KINDS: dict[str, type[Target]] = {each.kind: each for each in (Webhook, DingTalk, Feishu, WeCom, AppriseTarget)}
_HOSTS = {
    "oapi.dingtalk.com": "dingtalk",
    "api.dingtalk.com": "dingtalk",
    "open.feishu.cn": "feishu",
    "open.larksuite.com": "feishu",
    "qyapi.weixin.qq.com": "wecom",
    "hooks.slack.com": "apprise",
}
_PREFIX = re.compile(r"(webhook|dingtalk|feishu|lark|wecom)\+(https?://.*)", re.DOTALL)


def target_of(value: object, where: str = "notify") -> Target:
    """Returns the target of a URL; raises InvalidInputError, without the URL, which may be secret.

    `#secret=…` at the end is the secret of a robot, and `#on=failed,watch` the occasions. `dingtalk+https://…` is
    a robot at another host than DingTalk's.
    """
    if isinstance(value, Target):
        return value
    if not isinstance(value, str):
        hint = "such as 'https://…' or DingTalk(url, secret)"
        raise InvalidInputError([Problem(where, f"is a {type(value).__name__}, and no target", hint)])
    url, options = _split_options(value.strip())
    prefixed = _PREFIX.fullmatch(url)
    if prefixed:
        kind, url = ("feishu" if prefixed[1] == "lark" else prefixed[1]), prefixed[2]
    else:
        parts = _split(url)
        is_http = parts.scheme in ("http", "https")
        kind = _HOSTS.get((parts.hostname or "").lower(), "webhook") if is_http else "apprise"
        if not parts.scheme or not (parts.hostname or not is_http):
            raise InvalidInputError(
                [Problem(where, "is not the URL of a target", "such as https://… or mailtos://…")]
            )
    if kind in ("dingtalk", "feishu"):
        url, secret = _split_secret(url)
        options = {"secret": secret, **options} if secret else options
    elif "secret" in options:
        raise InvalidInputError([Problem(where, f"a target of the kind {kind} has no secret")])
    return _KINDS[kind](url, **options)


def target_from_wire(target: NotificationTarget) -> Target:
    """Returns the target of a request; raises InvalidInputError if it is not valid."""
    kind = _KINDS.get(target.kind)
    if kind is None:
        raise InvalidInputError(
            [Problem("Kind", f"has no value {target.kind[:40]!r}", f"use {', '.join(_KINDS)}")]
        )
    options: dict[str, Any] = {"on": target.on}
    if target.secret is not None and kind in (DingTalk, Feishu):
        options["secret"] = target.secret
    if target.headers and kind is Webhook:
        options["headers"] = target.headers
    return kind(target.url, **options)


def _split(url: str) -> SplitResult:
    """Splits a URL; one that is malformed has no scheme."""
    try:
        return urlsplit(url)
    except ValueError:  # a bracket of an IPv6 address is missing
        return SplitResult("", "", "", "", "")


def masked_url(url: str) -> str:
    """Returns the scheme and the host of a URL: the other parts may be secret."""
    parts = urlsplit(url)
    # The hosts of Apprise's URLs are often tokens.
    host = parts.hostname if parts.scheme in ("http", "https") else ""
    return f"{parts.scheme}://{host}/…" if host else f"{parts.scheme}://…"


def _split_options(url: str) -> tuple[str, dict[str, Any]]:
    match = _OPTION.search(url)
    if match is None:
        return url, {}
    options: dict[str, Any] = dict(parse_qsl(match[1]))
    if set(options) - {"on", "secret"}:
        return url, {}
    if "on" in options:
        options["on"] = tuple(filter(None, options["on"].split(",")))
    return url[: match.start()], options


def _split_secret(url: str) -> tuple[str, str | None]:
    """Removes `secret=` from the query of a robot's URL, which the robot would ignore."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    secret = next((value for name, value in pairs if name == "secret"), None)
    if secret is None:
        return url, None
    query = urlencode([pair for pair in pairs if pair[0] != "secret"])
    return parts._replace(query=query).geturl(), secret
