"""A message about a job, and its text within the limits of a target."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pai_sdk._core.terminal_text import visible_text

MAX_LINES = 20
"""Maximum number of log lines in a message."""

_MAX_LINE_LENGTH = 400
_MAX_REASON_LENGTH = 1000
_MAX_TITLE_LENGTH = 120
_FOOTER = "pai-sdk"  # also a keyword that a robot can require of each message
# Robots read these in a text as "mention all members": a log line must not do that.
_MENTION = re.compile(r"<(?=\s*(?:at\b|@|!))", re.IGNORECASE)


@dataclass(frozen=True)
class Message:
    """A message about a job, a pipeline, a search or a schedule.

    Attributes:
        title: one line, such as `train-7k2: Failed`.
        code: what happened, for programs: `JobFailed`, or the code of a rule.
        reason: why, in a sentence.
        link: the URL of the page of the job.
        lines: the last lines of the log.
        fields: further fields of the JSON, such as `job_id`.
    """

    title: str
    code: str
    reason: str = ""
    link: str | None = None
    lines: Sequence[str] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the body of a webhook."""
        return {
            **self.fields,
            "title": self.title,
            "code": self.code,
            "message": self.reason or None,
            "url": self.link,
            "lines": list(clean_lines(self.lines)),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Message:
        """Returns the message with this body."""
        fields = {name: value for name, value in body.items() if name not in _BODY_FIELDS}
        text = {name: str(body.get(name) or "") for name in ("title", "code", "message")}
        title = text["title"] or f"{fields.get('name') or fields.get('job_id')}: {fields.get('status')}"
        return cls(title, text["code"], text["message"], body.get("url"), list(body.get("lines") or ()), fields)

    def with_more(self, titles: Sequence[str]) -> Message:
        """Returns the message with the titles of further ones, which are sent with it."""
        if not titles:
            return self
        more = [f"and {len(titles)} more:", *titles[:MAX_LINES]]
        if len(titles) > MAX_LINES:
            more.append("…")
        reason = "\n".join([self.reason, *more] if self.reason else more)
        return replace(self, reason=reason, fields={**self.fields, "folded": len(titles)})


_NOT_DISPLAYED = ("id", "folded", "name", "status")  # name and status are in the title
_BODY_FIELDS = ("title", "code", "message", "url", "lines")


def clean_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yields the last lines without control sequences, each with a limited length."""
    for line in list(lines)[-MAX_LINES:]:
        yield truncated_text(visible_text(str(line).rstrip("\n")), _MAX_LINE_LENGTH)


def truncated_text(text: str, length: int) -> str:
    """Returns a text with at most so many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def truncated_bytes(text: str, size: int) -> str:
    """Returns a text with at most so many bytes of UTF-8; no character is split."""
    content = text.encode()
    if len(content) <= size:
        return text
    mark = "…"
    return content[: max(0, size - len(mark.encode()))].decode(errors="ignore") + mark


def title_of(message: Message) -> str:
    """Returns the title as one line of limited length."""
    return truncated_text(" ".join(_safe(message.title).split()), _MAX_TITLE_LENGTH)


def as_markdown(message: Message, size: int) -> str:
    """Returns the message as Markdown, as chat robots read it, with at most `size` bytes."""
    head = [f"### {title_of(message)}"]
    head += [truncated_text(_safe(message.reason), _MAX_REASON_LENGTH)] if message.reason else []
    head += [f"- {name}: {value}" for name, value in _details(message)]
    head += [f"[{message.link}]({message.link})"] if message.link else []
    return _join("\n\n".join(head), [f"> {line}" for line in map(_safe, clean_lines(message.lines))], size, "\n\n")


def as_text(message: Message, size: int, *, with_title: bool = True) -> str:
    """Returns the message as plain text with at most `size` bytes."""
    head = [title_of(message)] if with_title else []
    head += [truncated_text(_safe(message.reason), _MAX_REASON_LENGTH)] if message.reason else []
    head += [f"{name}: {value}" for name, value in _details(message)]
    head += [message.link] if message.link else []
    return _join("\n".join(head), [f"| {line}" for line in map(_safe, clean_lines(message.lines))], size, "\n")


def _details(message: Message) -> Iterator[tuple[str, str]]:
    evidence = message.fields.get("evidence")
    entries = [*message.fields.items(), *(evidence.items() if isinstance(evidence, Mapping) else ())]
    for name, value in entries:
        is_plain = value is not None and value != "" and not isinstance(value, Mapping | list | tuple)
        if is_plain and name not in _NOT_DISPLAYED:
            yield name, truncated_text(_safe(str(value)), _MAX_LINE_LENGTH)


def _join(head: str, lines: Sequence[str], size: int, separator: str) -> str:
    """Joins a head, the newest lines for which there is space, and the footer."""
    footer = f"{separator}{_FOOTER}"
    remaining = size - len(head.encode()) - len(footer.encode())
    fitting: list[str] = []
    for line in reversed(lines):
        remaining -= len(f"{separator}{line}".encode())
        if remaining < 0:
            break
        fitting.append(line)
    body = separator.join([head, *reversed(fitting)])
    return truncated_bytes(body, size - len(footer.encode())) + footer


def _safe(text: str) -> str:
    return _MENTION.sub("<\u200b", text)
