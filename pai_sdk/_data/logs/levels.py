"""The levels of log lines, in the formats of Python's logging, loguru, rich, glog, torch, TensorFlow and JSON.

A line without a level that continues another one has its level: indented lines, and the lines of a traceback.
"""

from __future__ import annotations

import re

NONE, DEBUG, INFO, WARNING, ERROR = range(5)
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
"""The names of the levels, the lowest first."""

_HEAD_BYTES = 200  # a level stands at the beginning of its line
_NAMES = rb"CRITICAL|DEBUG|ERROR|FATAL|INFO|NOTICE|TRACE|WARN(?:ING)?"
_TOKEN = re.compile(
    rb"(?:" + _NAMES + rb")\b"
    rb"|[CDEFIW]\d{4} \d\d:\d\d:"  # glog, torch: E1129 12:00:00.123456
    rb"|: [EFIW] [a-z_]+/"  # TensorFlow
    rb"|Traceback \(most recent call last\)"
    rb"|(?:Error|Exception):|During handling of the above|The above exception was"
    rb"|Warning:|warning:|error:|fatal:|panic:"
    rb"|\"(?:level|levelname|log_level|lvl|severity)\": ?\"(?P<json>\w+)|\b(?:level|lvl|severity)=\"?(?P<fmt>\w+)"
)
_LEVEL_BY_LETTER = {
    ord("C"): ERROR,
    ord("E"): ERROR,
    ord("F"): ERROR,
    ord("W"): WARNING,
    ord("I"): INFO,
    ord("N"): INFO,
    ord("D"): DEBUG,
    ord("T"): DEBUG,
}
_RANK = re.compile(rb"\[[\w.-]{1,20}\]: ?")  # torchrun: [rank0]: text
_INDENTED = re.compile(rb"[ \t|+]")
_NEW_LEVEL = re.compile(rb"[ \t]*(?:" + _NAMES + rb")\b")  # rich leaves out a repeated time
_CLASS = re.compile(rb"[\w.]*")


# What the lines of a level contain. A search for these is several times faster than one pattern for all.
_LITERALS = {
    ERROR: (
        *(b"ERROR", b"CRITICAL", b"FATAL", b"Traceback (most", b"Error:", b"Exception:", b": E ", b": F "),
        *(b"During handling of the above", b"The above exception was", b"error:", b"fatal:", b"panic:"),
        *(b'"error"', b'"critical"', b'"fatal"', b"=error", b"=fatal", b"=critical"),
    ),
    WARNING: (b"WARN", b"Warning:", b"warning:", b": W ", b'"warn', b"=warn"),
    INFO: (b"INFO", b"NOTICE", b": I ", b'"info', b"=info"),
    DEBUG: (b"DEBUG", b"TRACE", b'"debug', b"=debug", b'"trace', b"=trace"),
}
_GLOG = {
    level: re.compile(rb"\n(?:\[[\w.-]{1,20}\]: ?)?[" + letters + rb"]\d{4} \d\d:")
    for level, letters in (
        (ERROR, b"CEF"),
        (WARNING, b"CEFW"),
        (INFO, b"CEFWI"),
        (DEBUG, b"CEFWID"),
    )
}


class LevelScanner:
    """Finds the lines of a level, or of a higher one, in a log that is passed in parts."""

    def __init__(self, minimum: int) -> None:
        self._minimum = minimum
        self._literals = [word for level, literals in _LITERALS.items() if level >= minimum for word in literals]
        self._continues = False  # the last line has the level
        self._is_traceback = False  # and belongs to a traceback that has not ended

    def lines(self, content: bytes) -> list[int]:
        """Returns the numbers of the lines within the next part of the log, which ends with a line."""
        numbers: list[int] = []
        at, line = self._continue(content, 0, 0, numbers)
        for start in sorted(self._candidates(content)):
            if start < at:
                continue
            line += content.count(b"\n", at, start)
            at = start
            if self._level_at(content, start) < self._minimum:
                continue
            numbers.append(line)
            self._continues = True
            at, line = self._continue(content, content.find(b"\n", start) + 1 or len(content), line + 1, numbers)
        self._continues = self._continues and at == len(content)
        return numbers

    def _candidates(self, content: bytes) -> set[int]:
        """Returns the offsets of the lines that might have the level."""
        starts: set[int] = set()
        for word in self._literals:
            at = content.find(word)
            while at >= 0:
                starts.add(content.rfind(b"\n", 0, at) + 1)
                end = content.find(b"\n", at)
                at = content.find(word, end) if end >= 0 else -1
        starts.update(match.start() for match in _GLOG[self._minimum].finditer(b"\n" + content))
        return starts

    def _level_at(self, content: bytes, start: int) -> int:
        end = content.find(b"\n", start, start + _HEAD_BYTES)
        for match in _TOKEN.finditer(content, start, start + _HEAD_BYTES if end < 0 else end):
            if level := _level_of(match, start):
                self._is_traceback = match[0].startswith(b"Traceback")
                return level
        return NONE

    def _continue(self, content: bytes, at: int, line: int, numbers: list[int]) -> tuple[int, int]:
        """Adds the lines that continue the last one; returns the next line's offset and number."""
        while self._continues and at < len(content):
            text = at
            if content.startswith(b"[", at) and (rank := _RANK.match(content, at)):
                text = rank.end()
            if not _INDENTED.match(content, text):
                self._continues = self._is_traceback and not content.startswith((b"\n", b"\r\n"), text)
                if not self._continues:
                    break
                self._is_traceback = False  # the line of the exception is the last one
            elif not self._is_traceback and _NEW_LEVEL.match(content, text):
                self._continues = False
                break
            numbers.append(line)
            at, line = content.find(b"\n", at) + 1 or len(content), line + 1
        return at, line


def _level_of(match: re.Match[bytes], start: int) -> int:
    token, content, at = match[0], match.string, match.start()
    if name := match["json"] or match["fmt"]:
        return _LEVEL_BY_LETTER.get(name.upper()[0], NONE)
    if token in (b"Error:", b"Exception:"):
        rank = _RANK.match(content, start)
        return ERROR if _CLASS.fullmatch(content, rank.end() if rank else start, at) else NONE
    if token.startswith(b": "):
        return _LEVEL_BY_LETTER[token[2]]
    if token == b"Warning:":
        return WARNING
    if at > start and content[at - 1 : at].isalnum():
        return NONE
    if token == b"warning:":
        return WARNING
    if token[0] in b"efp" or token.startswith((b"Traceback", b"During", b"The ")):
        return ERROR
    return _LEVEL_BY_LETTER[token[0]]
