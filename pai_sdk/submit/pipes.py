"""Finds pipes that hide a failure: of `python train.py | tee log`, the shell reports how `tee` ended."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
# Their failure matters little, or cannot happen: they only feed the program behind the pipe.
_FEEDERS = frozenset(("echo", "printf", "yes", "cat", "seq", "ls", "find", "true", ":", "zcat", "gunzip"))
_HEREDOC = re.compile(r"<<-?\s*(['\"\\]?)(\w+)['\"]?")
_ASSIGNMENT = re.compile(r"\w+=")
_OPENING = ("if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "exec", "nohup", "env")


def hiding_pipe(command: Sequence[str]) -> str:
    """The program whose failure is lost in a pipe, with the pipe itself; empty where none is.

    Args:
        command: as a request has it. Only commands of a shell have pipes.

    Example:
        >>> hiding_pipe(["sh", "-c", "python train.py 2>&1 | tee log.txt"])
        'python train.py 2>&1 | tee log.txt'
        >>> hiding_pipe(["bash", "-o", "pipefail", "-c", "python train.py | tee log.txt"])
        ''
    """
    script, is_safe = _script_of(command)
    return "" if script is None or "PIPESTATUS" in script else _hiding_pipe(script, is_safe=is_safe)


def _hiding_pipe(script: str, *, is_safe: bool) -> str:
    for pipeline in _pipelines(script):
        words = _words(pipeline.commands[0])
        if words[:1] == ["set"]:
            is_safe = _pipefail(words[1:], is_safe=is_safe)
        for command in pipeline.commands:
            inner, safe_inside = _script_of(_words(command))
            if inner is not None and (found := _hiding_pipe(inner, is_safe=safe_inside)):
                return found
        lost = [_words(command) for command in pipeline.commands[:-1]]
        if not is_safe and any(words and words[0] not in _FEEDERS for words in lost):
            return " | ".join(" ".join(command.split()) for command in pipeline.commands)
    return ""


def _script_of(words: Sequence[str]) -> tuple[str | None, bool]:
    """The text that a shell is to run by `-c`, and whether `pipefail` is set by its options."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None, False
    for number, word in enumerate(words[1:], 1):
        if word.startswith("-") and not word.startswith("--") and "c" in word and number + 1 < len(words):
            is_safe = _pipefail(words[1:number], is_safe=False)
            # In `bash -oc pipefail script` the name comes after all letters.
            if "o" in word and words[number + 1] == "pipefail":
                return (words[number + 2] if number + 2 < len(words) else None), True
            return words[number + 1], is_safe
        if not word.startswith(("-", "+")) and not words[number - 1].endswith("o"):
            return None, False
    return None, False


def _pipefail(options: Sequence[str], *, is_safe: bool) -> bool:
    for option, value in pairwise(options):
        if value == "pipefail" and option[:1] in "-+" and option.endswith("o"):
            is_safe = option.startswith("-")
    return is_safe


def _words(command: str) -> list[str]:
    """The words of a simple command, without assignments and words that only open a construct."""
    try:
        words = shlex.split(command.strip(" \t\n()"), comments=False)
    except ValueError:
        return []
    while words and (words[0] in _OPENING or _ASSIGNMENT.match(words[0])):
        words.pop(0)
    return words


# ---- the shell's grammar, as far as pipes need it


@dataclass
class _Pipeline:
    commands: list[str] = field(default_factory=lambda: [""])


def _pipelines(script: str) -> Iterator[_Pipeline]:
    """The pipelines of a script in their order; those in `$(…)` and backticks are part of a word."""
    return _Scanner(script).run()


class _Scanner:
    """Cuts a script at `|`, and at what ends a pipeline: `;`, `&`, `&&`, `||` and line ends."""

    def __init__(self, script: str) -> None:
        self._text = script
        self._at = 0
        self._here_documents: list[str] = []
        self._cases = 0  # open `case … esac`
        self._is_pattern = False  # between `in` or `;;` of a case, and its `)`

    def run(self) -> Iterator[_Pipeline]:
        pipeline = _Pipeline()
        while self._at < len(self._text):
            piece = self._next()
            if self._is_cut(piece):
                if pipeline.commands != [""]:
                    yield pipeline
                pipeline = _Pipeline()
            elif piece in ("|", "|&") and not self._is_pattern:
                pipeline.commands.append("")
            else:
                pipeline.commands[-1] += piece
                self._note_case(pipeline.commands[-1], piece)
        if any(command.strip() for command in pipeline.commands):
            yield pipeline

    @staticmethod
    def _is_cut(piece: str) -> bool:
        return piece in (";", ";;", "&", "&&", "||", "\n")

    def _note_case(self, command: str, piece: str) -> None:
        if self._cases and piece == ")":
            self._is_pattern = False
        last = command.split()[-1:] if piece.isspace() or self._at >= len(self._text) else []
        if last == ["in"] and re.search(r"(?:^|\s)case\s", command):
            self._cases, self._is_pattern = self._cases + 1, True
        elif last == ["esac"] and self._cases:
            self._cases, self._is_pattern = self._cases - 1, False

    def _next(self) -> str:
        """The next piece: an operator, a quoted part, a substitution, or one character."""
        text, start = self._text, self._at
        character = text[start]
        ahead = text[start : start + 2]
        if character == "\\":
            self._at += 2
        elif character == "'":
            self._at = self._after(text.find("'", start + 1))
        elif character == '"':
            self._at = _end_of_quotes(text, start)
        elif character == "`":
            self._at = self._after(text.find("`", start + 1))
        elif ahead in ("$(", "<(", ">("):
            self._at = _end_of_parentheses(text, start + 1)
        elif ahead == "${":
            self._at = self._after(text.find("}", start))
        elif character == "#" and (start == 0 or text[start - 1] in " \t\n;&|("):
            end = text.find("\n", start)
            self._at = len(text) if end < 0 else end
            return ""
        elif here := _HEREDOC.match(text, start):
            if text[start : start + 3] != "<<<":
                self._here_documents.append(here[2])
            self._at = here.end() if text[start : start + 3] != "<<<" else start + 3
        elif ahead in (">|", ">&", "<&", "&>"):
            self._at += 2
        elif ahead in ("&&", "||", "|&", ";;"):
            self._at += 2
            if ahead == ";;" and self._cases:
                self._is_pattern = True
        else:
            self._at += 1
            if character == "\n":
                self._skip_here_documents()
                return character
        return text[start : self._at]

    def _after(self, end: int) -> int:
        return len(self._text) if end < 0 else end + 1

    def _skip_here_documents(self) -> None:
        for word in self._here_documents:
            end = re.compile(rf"^\t*{re.escape(word)}$\n?", re.MULTILINE).search(self._text, self._at)
            self._at = end.end() if end else len(self._text)
        self._here_documents.clear()


def _end_of_quotes(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] != '"':
        if text[at] == "\\":
            at += 2
        elif text[at : at + 2] == "$(":
            at = _end_of_parentheses(text, at + 1)
        else:
            at += 1
    return min(at + 1, len(text))


def _end_of_parentheses(text: str, start: int) -> int:
    """Behind the parenthesis that closes the one at `start`."""
    depth, at = 0, start
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == "'":
            end = text.find("'", at + 1)
            at = len(text) if end < 0 else end + 1
            continue
        if text[at] == '"':
            at = _end_of_quotes(text, at)
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            return at
    return len(text)
