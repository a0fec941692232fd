"""Splits SQL text into tokens, in time that grows linearly with its length."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pai_sdk.service.tables.table_errors import TableError

__all__ = ["Token", "Tokens", "unclear"]

_MOST_TOKENS = 100_000  # 1,200 columns with a comment each have 10,000
# No alternative begins like another one, and none can be repeated in two ways: a failed match costs one pass.
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
_SHOWN = 60


class Token(NamedTuple):
    """A part of a statement.

    Attributes:
        kind: `word`, `name` (between back quotes), `text` (between quotes), `sign`, or `end`.
        text: without the quotes.
        start: its first character in the statement.
        end: the one after its last.
    """

    kind: str
    text: str
    start: int
    end: int


class Tokens:
    """The tokens of a statement, taken from the front.

    Args:
        sql: the statement.

    Raises:
        TableError: a quote is not closed, or there are too many tokens.

    Example:
        >>> tokens = Tokens("DROP TABLE `t`")
        >>> tokens.take_words("drop", "table"), tokens.take_name("a table")
        (True, 't')
    """

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = _split(sql)
        self._next = 0

    @property
    def next(self) -> Token:
        """The token that is not taken yet."""
        return self._tokens[self._next]

    def take(self) -> Token:
        """Take the next token; the end can be taken again and again."""
        token = self.next
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def take_words(self, *words: str) -> bool:
        """Take these words, in any case; returns False and takes none when others come."""
        found = self._tokens[self._next : self._next + len(words)]
        if [(token.kind, token.text.upper()) for token in found] != [("word", word.upper()) for word in words]:
            return False
        self._next += len(words)
        return True

    def take_sign(self, sign: str) -> bool:
        """Take this sign; returns False when something else comes."""
        is_there = self.next[:2] == ("sign", sign)
        self._next += is_there
        return is_there

    def take_name(self, what: str) -> str:
        """Take a name, which may be quoted."""
        if self.next.kind not in ("word", "name") or not self.next.text:
            raise self.unexpected(f"the name of {what}")
        return self.take().text

    def take_text(self) -> str:
        """Take a quoted text."""
        if self.next.kind != "text":
            raise self.unexpected("a quoted text")
        return self.take().text

    def expect(self, sign: str) -> None:
        """Take this sign.

        Raises:
            TableError: something else comes.
        """
        if not self.take_sign(sign):
            raise self.unexpected(repr(sign))

    def take_list(self, take_item: Callable[[], None]) -> None:
        """Take items with commas between, in brackets; `take_item` takes one."""
        self.expect("(")
        take_item()
        while self.take_sign(","):
            take_item()
        self.expect(")")

    def between(self, first: Token, last: Token) -> str:
        """The statement's text from one token to another."""
        return self._sql[first.start : last.end]

    def unexpected(self, expected: str) -> TableError:
        """The error of a statement that goes on in another way than it should."""
        token = self.next
        if token.kind == "end":
            return unclear(f"The statement ends where {expected} is expected.")
        rest = self._sql[token.start : token.start + _SHOWN]
        return unclear(f"{expected} is expected instead of {rest!r}, at character {token.start + 1}.")


def unclear(message: str) -> TableError:
    """The error of a statement that cannot be parsed."""
    return TableError(400, "ODPS-0130161", message)


def _split(sql: str) -> list[Token]:
    tokens: list[Token] = []
    position = _end_of_spaces(sql, 0)
    while position < len(sql):
        if len(tokens) >= _MOST_TOKENS:
            raise unclear(f"The statement has more than {_MOST_TOKENS:,} words and signs.")
        found = _TOKEN.match(sql, position)
        if found is None:
            raise unclear(f"The quote at character {position + 1} is not closed.")
        kind, text = found.lastgroup or "", found[found.lastgroup or 0]
        if kind in ("single", "double"):
            kind, text = "text", _ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]), text)
        tokens.append(Token(kind, text, position, found.end()))
        position = _end_of_spaces(sql, found.end())
    return [*tokens, Token("end", "", len(sql), len(sql))]


def _end_of_spaces(sql: str, position: int) -> int:
    found = _SPACES.match(sql, position)
    return found.end() if found else position
