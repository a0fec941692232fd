"""Parses shell scripts as far as a submission needs: tokens, quotes, variables, here-documents, arrays."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

__all__ = ["Array", "Command", "Output", "Part", "ShellError", "Text", "Variable", "Word", "parse"]

_NAME = re.compile(r"[A-Za-z_]\w*")
_SPECIAL = re.compile(r"[0-9@*#?$!-]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_REDIRECTION = re.compile(r"(\d*)(<<<|<<-|<<|<>|<&|<|>>|>\||>&|>|&>>|&>)")
_ENDS_WORD = " \t\r\n;&|()<>"
_ESCAPED_IN_QUOTES = '$`"\\'
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "e": "\x1b"}
_OPENING = ("if", "for", "while", "until", "case", "select")
_CLOSING = ("fi", "done", "esac")
_LEADING = (*_OPENING, "then", "do", "else", "elif", "!", "{", "}", "time", *_CLOSING)


class ShellError(ValueError):
    """Raised where a quote or a bracket is not closed."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Text:
    """Characters as they are."""

    value: str
    is_quoted: bool = True


@dataclass(frozen=True)
class Variable:
    """`$name`, or `${name:-word}` with operator and word."""

    name: str
    operator: str = ""
    word: Word = ()
    is_quoted: bool = False


@dataclass(frozen=True)
class Output:
    """`$(commands)`, backquotes, or `$((…))`, which has no commands."""

    source: str
    commands: tuple[Command, ...] = ()
    is_quoted: bool = False


Part = Text | Variable | Output
Word = tuple[Part, ...]


@dataclass(frozen=True)
class Array:
    """The tokens of `NAME=(…)`."""

    tokens: tuple[Word, ...]


@dataclass
class Command:
    """A simple command; `depth` counts the loops and conditions around it."""

    line: int
    depth: int = 0
    # Name, whether the value is appended, value.
    assignments: list[tuple[str, bool, Word | Array]] = field(default_factory=list)
    tokens: list[Word] = field(default_factory=list)
    heredocs: list[Word] = field(default_factory=list)
    targets: list[Word] = field(default_factory=list)  # files that its output is written to

    def __hash__(self) -> int:
        return id(self)


def parse(text: str) -> list[Command]:
    """Parses a script; raises ShellError."""
    return _Parser(text.replace("\r\n", "\n")).commands()


class _Parser:
    """One pass over the text. `_pending` holds here-documents whose lines begin behind the current line."""

    def __init__(self, text: str, line: int = 1) -> None:
        self._text = text
        self._at = 0
        self._first_line = line
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._depth = 0
        self._pending: list[tuple[Command, str, bool, bool]] = []

    def commands(self, end: str = "") -> list[Command]:
        """Parses commands up to `end`, a bracket, which is consumed, or up to the end of the text."""
        commands: list[Command] = []
        start, level = self._at, 0
        command = Command(self._line(), self._depth)
        while True:
            self._skip_blanks()
            character = self._peek()
            if not character or (character == end and level == 0):
                break
            if character in "\n;&|()" and not self._text.startswith("&>", self._at):
                level += {"(": 1, ")": -1}.get(character, 0)
                command = self._finish(command, commands)
                self._at += 1
                if character == "\n":
                    self._read_heredocs()
                continue
            if not command.tokens and not command.assignments:
                command.line = self._line()
            self._read_item(command)
        self._finish(command, commands)
        if end and not self._peek():
            raise ShellError(f"a bracket that is opened here is not closed by {end!r}", self._line(start))
        self._at += len(end)
        return commands

    def _finish(self, command: Command, commands: list[Command]) -> Command:
        while command.tokens and (keyword := _plain(command.tokens[0])) in _LEADING:
            self._depth += (keyword in _OPENING) - (keyword in _CLOSING)
            if keyword in ("for", "case", "select"):
                break
            del command.tokens[0]
            self._assignments_of(command)
        if command.tokens or command.assignments:
            command.depth = self._depth
            commands.append(command)
        return Command(self._line(), self._depth)

    def _assignments_of(self, command: Command) -> None:
        """Moves assignments that stood behind a keyword to where they belong."""
        while command.tokens and (assignment := _assignment(command.tokens[0])):
            command.assignments.append(assignment)
            del command.tokens[0]

    def _read_item(self, command: Command) -> None:
        if match := _REDIRECTION.match(self._text, self._at):
            self._redirect(command, match)
            return
        match = _ASSIGNMENT.match(self._text, self._at)
        if match and self._text.startswith("(", match.end()):
            self._at = match.end() + 1
            command.assignments.append((match[1], bool(match[2]), Array(tuple(self._array()))))
            return
        word = self._word()
        declares = bool(command.tokens) and _plain(command.tokens[0]) in ("export", "local", "readonly", "declare")
        assignment = _assignment(word) if not command.tokens or declares else None
        if assignment is not None:
            command.assignments.append(assignment)
        else:
            command.tokens.append(word)

    def _redirect(self, command: Command, match: re.Match[str]) -> None:
        self._at = match.end()
        self._skip_blanks()
        start = self._at
        word = self._word()
        if match[2] in ("<<", "<<-"):
            raw = self._text[start : self._at]
            delimiter = re.sub(r"[\\'\"]", "", raw)
            self._pending.append((command, delimiter, raw == delimiter, match[2] == "<<-"))
        elif match[2] == "<<<":
            command.heredocs.append((*word, Text("\n")))
        elif match[2].startswith((">", "&>")) and match[2] != ">&":
            command.targets.append(word)

    def _read_heredocs(self) -> None:
        pending, self._pending = self._pending, []
        for command, delimiter, expands, strips_tabs in pending:
            lines, line_number = [], self._line()
            while True:
                if self._at >= len(self._text):
                    raise ShellError(f"a here-document is not ended by {delimiter!r}", command.line)
                end = self._text.find("\n", self._at)
                line = self._text[self._at : end if end >= 0 else len(self._text)]
                self._at += len(line) + 1
                line = line.lstrip("\t") if strips_tabs else line
                if line == delimiter:
                    break
                lines.append(f"{line}\n")
            content = "".join(lines)
            word = _Parser(content, line_number).quoted_text("") if expands else (Text(content),)
            command.heredocs.append(word)

    def _array(self) -> list[Word]:
        tokens: list[Word] = []
        start = self._at
        while True:
            self._skip_blanks()
            character = self._peek()
            if not character:
                raise ShellError("an array is not closed by ')'", self._line(start))
            if character == ")":
                self._at += 1
                return tokens
            if character in _ENDS_WORD:
                self._at += 1
            else:
                tokens.append(self._word())

    # ---- words -----------------------------------------------------------------------------------------------

    def _word(self) -> Word:
        parts: list[Part] = []
        while (character := self._peek()) and character not in _ENDS_WORD:
            self._at += 1
            if character == "'":
                parts.append(Text(self._until("'")))
            elif character == '"':
                parts += self.quoted_text('"') or (Text(""),)
            elif character == "\\":
                escaped = self._peek()
                self._at += 1
                parts.append(Text("" if escaped == "\n" else escaped))
            elif character in "$`":
                parts.append(self._expansion(character, is_quoted=False))
            else:
                parts.append(Text(character, is_quoted=False))
        return _joined(parts)

    def quoted_text(self, end: str) -> Word:
        """Parses text between double quotes; with "" for `end`, a here-document, where quotes mean nothing."""
        parts: list[Part] = []
        start = self._at
        while (character := self._peek()) != end:
            if not character:
                raise ShellError("a double quote is not closed", self._line(start - 1))
            self._at += 1
            if character == "\\" and self._peek() and self._peek() in _ESCAPED_IN_QUOTES + "\n":
                escaped = self._peek()
                keeps_backslash = escaped == '"' and not end
                self._at += 1
                parts.append(Text('\\"' if keeps_backslash else "" if escaped == "\n" else escaped))
            elif character in "$`":
                parts.append(self._expansion(character, is_quoted=True))
            else:
                parts.append(Text(character))
        self._at += len(end)
        return _joined(parts)

    def _expansion(self, character: str, *, is_quoted: bool) -> Part:
        start, text = self._at, self._text
        if character == "`":
            source = re.sub(r"\\([`$\\])", r"\1", self._until("`"))
            return Output(source, tuple(_Parser(source, self._line(start)).commands()), is_quoted)
        if text.startswith("((", start):
            self._at = self._end_of_arithmetic(start)
            return Output(text[start - 1 : self._at], (), is_quoted)
        if text.startswith("(", start):
            self._at += 1
            commands = self._inner_commands()
            return Output(text[start + 1 : self._at - 1], commands, is_quoted)
        if text.startswith("{", start):
            self._at += 1
            return self._braces(is_quoted=is_quoted)
        if text.startswith("'", start) and not is_quoted:
            self._at += 1
            return Text(self._ansi_text())
        match = _NAME.match(text, start) or _SPECIAL.match(text, start)
        if match is None:
            return Text("$")
        self._at = match.end()
        return Variable(match[0], is_quoted=is_quoted)

    def _inner_commands(self) -> tuple[Command, ...]:
        # Here-documents of the outer command begin behind its own line, not within the brackets.
        pending, self._pending = self._pending, []
        depth, self._depth = self._depth, 0
        commands = tuple(self.commands(")"))
        self._pending, self._depth = pending, depth
        return commands

    def _end_of_arithmetic(self, start: int) -> int:
        level = 0
        for index in range(start, len(self._text)):
            level += {"(": 1, ")": -1}.get(self._text[index], 0)
            if level == 0:
                return index + 1
        raise ShellError("'((' is not closed", self._line(start))

    def _braces(self, *, is_quoted: bool) -> Part:
        start = self._at
        match = re.compile(r"([!#]?)([A-Za-z_]\w*|[0-9@*#?])((?:\[[^\]]*\])?)").match(self._text, start)
        if match is None:
            raise ShellError("'${' is not closed by a name and '}'", self._line(start))
        self._at = match.end()
        operator = re.compile(r":?[-=+?]|[#%/^,:]{0,2}").match(self._text, self._at)
        self._at += len(operator[0]) if operator else 0
        parts: list[Part] = []
        while (character := self._peek()) != "}":
            if not character:
                raise ShellError("'${' is not closed", self._line(start))
            self._at += 1
            if character == "'" and not is_quoted:
                parts.append(Text(self._until("'")))
            elif character == '"':
                parts += self.quoted_text('"')
            elif character in "$`":
                parts.append(self._expansion(character, is_quoted=is_quoted))
            else:
                parts.append(Text(character))
        self._at += 1
        name = f"{match[1]}{match[2]}{match[3]}"
        return Variable(name, operator[0] if operator else "", _joined(parts), is_quoted)

    def _ansi_text(self) -> str:
        start, characters = self._at, []
        while (character := self._peek()) != "'":
            if not character:
                raise ShellError("a quote is not closed", self._line(start))
            self._at += 1
            if character == "\\":
                escaped = self._peek()
                self._at += 1
                character = _ANSI.get(escaped, f"\\{escaped}")
            characters.append(character)
        self._at += 1
        return "".join(characters)

    # ---- characters -----------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _line(self, index: int | None = None) -> int:
        return self._first_line + bisect_left(self._line_ends, self._at if index is None else index)

    def _until(self, end: str) -> str:
        """Returns the text up to `end`, which is consumed; within backquotes, a backslash escapes."""
        start = self._at
        while self._peek() and self._peek() != end:
            self._at += 2 if self._peek() == "\\" and end == "`" else 1
        if not self._peek():
            raise ShellError("a quote is not closed", self._line(start - 1))
        self._at += 1
        return self._text[start : self._at - 1]

    def _skip_blanks(self) -> None:
        while True:
            if self._peek() and self._peek() in " \t\r":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._peek() == "#":  # here a word would begin, so it is a comment
                while self._peek() and self._peek() != "\n":
                    self._at += 1
            else:
                return


def _plain(word: Word) -> str:
    """Returns a word without quotes and expansions; "" for other ones."""
    match word:
        case (Text(value, is_quoted=False),):
            return value
    return ""


def _assignment(word: Word) -> tuple[str, bool, Word] | None:
    if not word or not isinstance(word[0], Text) or word[0].is_quoted:
        return None
    match = _ASSIGNMENT.match(word[0].value)
    if match is None:
        return None
    return match[1], bool(match[2]), _joined([Text(word[0].value[match.end() :], is_quoted=False), *word[1:]])


def _joined(parts: list[Part]) -> Word:
    """Joins neighbouring texts. An empty one stays only where it is the whole word, which `""` is."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(last, Text) and last.is_quoted == part.is_quoted:
            joined[-1] = Text(last.value + part.value, part.is_quoted)
        elif not isinstance(part, Text) or part.value or part.is_quoted:
            joined.append(part)
    return tuple(joined)
