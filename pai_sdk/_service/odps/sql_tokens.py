"""Splits SQL text into tokens, in time that grows linearly with its length."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pai_sdk._service.odps.table_errors import TableError

_MAX_TOKENS = 100_000  # 1,200 columns with a comment each have 10,000
# No alternative starts like another one, and none can match in two ways: a failed match takes linear time.
_TOKEN = re.compile(
    r"(?P<word>\w+)"
    r"|`(?P<name>[^`]*)`"
    r"|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'"
    r'|"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"'
    r"|(?P<sign>[^\w\s`'\"])",
    re.DOTALL,
)
_SPACES = re.compile(r"\s*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "r": "\r", "0": "\0"}
_MAX_EXCERPT = 60


class Token(NamedTuple):
    """A part of a statement."""

    kind: str  # `word`, `name` (between back quotes), `text` (between quotes), `sign`, or `end`
    text: str  # without the quotes
    start: int
    end: int  # exclusive


class Tokens:
    """The tokens of a statement, consumed from the front."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = _split(sql)
        self._next = 0

    @property
    def next(self) -> Token:
        """Returns the next token without consuming it."""
        return self._tokens[self._next]

    def pop(self) -> Token:
        """Consumes the next token; the token `end` stays."""
        token = self.next
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def accept_keywords(self, *keywords: str) -> bool:
        """Consumes these keywords, in any case; returns False and consumes nothing if others follow."""
        candidates = self._tokens[self._next : self._next + len(keywords)]
        if [(token.kind, token.text.upper()) for token in candidates] != [
            ("word", word.upper()) for word in keywords
        ]:
            return False
        self._next += len(keywords)
        return True

    def accept_sign(self, sign: str) -> bool:
        """Consumes this sign; returns False if another token follows."""
        is_match = self.next[:2] == ("sign", sign)
        self._next += is_match
        return is_match

    def expect_name(self, description: str) -> str:
        """Consumes a name, which may be quoted."""
        if self.next.kind not in ("word", "name") or not self.next.text:
            raise self.unexpected(f"the name of {description}")
        return self.pop().text

    def expect_string(self) -> str:
        """Consumes a quoted string."""
        if self.next.kind != "text":
            raise self.unexpected("a quoted string")
        return self.pop().text

    def expect(self, sign: str) -> None:
        """Consumes this sign, or raises for another token."""
        if not self.accept_sign(sign):
            raise self.unexpected(repr(sign))

    def expect_list(self, parse_item: Callable[[], None]) -> None:
        """Consumes items in brackets, separated by commas; `parse_item` consumes one item."""
        self.expect("(")
        parse_item()
        while self.accept_sign(","):
            parse_item()
        self.expect(")")

    def between(self, first: Token, last: Token) -> str:
        """Returns the statement's text from one token to another."""
        return self._sql[first.start : last.end]

    def unexpected(self, expected: str) -> TableError:
        """Returns the error for the next token, which is not the expected one."""
        token = self.next
        if token.kind == "end":
            return unclear(f"The statement ends where {expected} is expected.")
        excerpt = self._sql[token.start : token.start + _MAX_EXCERPT]
        return unclear(f"{expected} is expected instead of {excerpt!r}, at character {token.start + 1}.")


def unclear(message: str) -> TableError:
    """Returns the error of a statement that cannot be parsed."""
    return TableError(400, "ODPS-0130161", message)


def _split(sql: str) -> list[Token]:
    tokens: list[Token] = []
    position = _end_of_spaces(sql, 0)
    while position < len(sql):
        if len(tokens) >= _MAX_TOKENS:
            raise unclear(f"The statement has more than {_MAX_TOKENS:,} words and signs.")
        match = _TOKEN.match(sql, position)
        if match is None:
            raise unclear(f"The quote at character {position + 1} is not closed.")
        kind, text = match.lastgroup or "", match[match.lastgroup or 0]
        if kind in ("single", "double"):
            kind, text = "text", _ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]), text)
        tokens.append(Token(kind, text, position, match.end()))
        position = _end_of_spaces(sql, match.end())
    return [*tokens, Token("end", "", len(sql), len(sql))]


def _end_of_spaces(sql: str, position: int) -> int:
    match = _SPACES.match(sql, position)
    return match.end() if match else position
