"""Finds the last traceback of a program in its log, with all exceptions of its chain, the root cause first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

# Not within an exception group, where two spaces and a bar precede it.
_START = re.compile(
    # Linear, also for a line of blanks: logs are of users.
    r"(?!\s+\||.*\s\s\|)(?P<prefix>.*?)(?P<mark>  \+ Exception Group |(?<!\s)\s*)"
    r"Traceback \(most recent call last\):\s*$",
    re.DOTALL,
)
_EXCEPTION = re.compile(r"[^\W\d][\w.<>]*(?::\s.*|:)?$", re.DOTALL)
_GROUP_LINE = re.compile(r"\s+[|+]")
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
# Exceptions of torchrun about the program that it has started; the traceback of that program precedes them.
_LAUNCHER_ERRORS = ("ChildFailedError",)
# Exceptions of `subprocess.run(check=True)`, `accelerate launch` and pools about a failed process. Python exits
# with 1 after an exception, so another exit status does not imply an earlier traceback.
_CHILD_FAILED = re.compile(
    r"(?:[\w.]+\.)?(?:CalledProcessError: .* returned non-zero exit status 1\.?$"
    r"|ProcessExitedException: .* exit code 1$|BrokenProcessPool\b"
    r"|RuntimeError: Horovod detected that one or more processes exited with non-zero status)",
    re.DOTALL,
)
_STARTED_BY = "The program above, which failed with that exception, was started by this one:"
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")
# Tracebacks in the formats of IPython (also of nbconvert and papermill) and rich.
_IPYTHON_START = re.compile(
    r"(?P<prefix>(?:\[[^\]]*\]: ?)?)(?P<type>[^\W\d][\w.]*) +Traceback \(most recent call last\)\s*$"
)
_RICH_START = re.compile(
    r"(?P<prefix>(?:\[[^\]]*\]: ?)?)[╭+][─-]+ Traceback \(most recent call last\) [─-]+[╮+]\s*$"
)
_RICH_LINE = re.compile(r"[│|] (?P<text>.*)[│|]\s*$")
_RICH_END = re.compile(r"[╰+][─-]+[╯+]\s*$")
_MAX_PREFIXES = 64
_MAX_LAUNCHERS = 8  # each started by the next one
_PLAIN_START = "Traceback (most recent call last):"
_MAX_FRAMED_LINES = 400
_MAX_LINES_BETWEEN = 60  # between the tracebacks of a process and of its launcher: the last output of both
_SYNTAX_ERROR = re.compile(r"(?:Syntax|Indentation|Tab)Error: .")
_LOCATION = re.compile(r'  File ".*", line [0-9]+$')
_MAX_LOCATION_LINES = 4  # between the location of a syntax error and the error: the code, and its mark
_LIBRARY = re.compile(r'/(?:site|dist)-packages/|/lib/python3[.\d]*/|File "<frozen ')
_MAX_MESSAGE_LINES = 8  # of an exception whose message has several lines, at the end of a log
_MAX_FRAME_LINES = 6  # of each exception: two frames, with their marks
_MAX_BLOCKS = 4
_MAX_GROUP_LINES = 24


def find_traceback(lines: Iterable[str]) -> str:
    r"""Returns the last Python traceback in a log's last lines, or an empty string.

    The result includes chained exceptions, the root cause first, and those of an exception group. Lines of several
    processes can be mixed if each line has a prefix (`[rank1]: `), as those of torchrun: then the first traceback
    with a prefix is returned. If the last traceback is that of a launcher whose process has failed
    (`CalledProcessError`), the traceback of that process precedes it. A syntax error of the program itself has no
    traceback; its location is returned. Colours are removed, and tracebacks of IPython, papermill and rich are
    converted to Python's format.
    """
    lines = _unframed([_COLOUR.sub("", line) for line in lines])
    prefixes = _prefixes(lines)
    chains = [chain for prefix in prefixes if (chain := _last_chain(_lines_of(lines, prefix, prefixes)))]
    first = min(chains, key=lambda chain: (not chain.has_prefix, chain.number), default=None)
    if first is None:
        error = _last_syntax_error([_Line(number, line) for number, line in enumerate(lines)])
        first = error if error and len(lines) - error.last_number <= _MAX_MESSAGE_LINES else None
    return "\n".join(first.lines) if first else ""


def root_cause(traceback: str) -> str:
    r"""Returns the line of the first exception of a chain that `find_traceback` has returned."""
    return _exception_line(_blocks(traceback)[0]) if traceback else ""


def is_launcher_error(cause: str) -> bool:
    """Returns True when an exception only reports that another program has failed."""
    return bool(_CHILD_FAILED.match(cause)) or _exception_type(cause) in ("CalledProcessError", *_LAUNCHER_ERRORS)


def shortened(traceback: str) -> list[str]:
    """Returns the lines of a chain to display: the last frames of each exception, the ends of a long chain."""
    blocks = _blocks(traceback)
    lines: list[str] = []
    for number, block in enumerate(blocks):
        omitted = len(blocks) - _MAX_BLOCKS
        if omitted > 0 and 1 < number < len(blocks) - 2:
            if number == 2:
                lines += ["", f"… {omitted} more exceptions …"]
            continue
        lines += _short_block(block)
    return lines


# ---- finding


@dataclass(frozen=True)
class _Line:
    """A line of the searched program: its number in the log, and its text without the prefix."""

    number: int
    text: str
    has_prefix: bool = False


@dataclass(frozen=True)
class _Chain:
    """The lines of a chain, and the numbers of the first and the last one in the log."""

    number: int
    last_number: int
    lines: tuple[str, ...]
    has_prefix: bool


def _unframed(lines: list[str]) -> list[str]:
    """Converts tracebacks of IPython and rich to Python's format, with as many lines."""
    for number, line in enumerate(lines):
        if match := _IPYTHON_START.match(line):
            _unframe_ipython(lines, number, match)
        elif match := _RICH_START.match(line):
            _unframe_rich(lines, number, match["prefix"])
    return lines


def _unframe_ipython(lines: list[str], start: int, header: re.Match[str]) -> None:
    """Indents all lines of a traceback of IPython up to the last one, which starts with the type of the header."""
    prefix, kind = header["prefix"], header["type"]
    for end in range(start + 1, min(len(lines), start + _MAX_FRAMED_LINES)):
        if _exception_type(lines[end].removeprefix(prefix)) == kind.rpartition(".")[2]:
            body = [f"{prefix}  {line.removeprefix(prefix)}".rstrip() for line in lines[start + 1 : end]]
            lines[start:end] = [f"{prefix}{_PLAIN_START}", *body]
            return


def _unframe_rich(lines: list[str], start: int, prefix: str) -> None:
    """Removes the frame from a traceback of rich; the exception follows below the frame."""
    lines[start] = f"{prefix}{_PLAIN_START}"
    for number in range(start + 1, min(len(lines), start + _MAX_FRAMED_LINES)):
        text = lines[number].removeprefix(prefix)
        if _RICH_END.match(text):
            lines[number] = prefix.rstrip()
            return
        if (inner := _RICH_LINE.match(text)) is None:
            return
        lines[number] = f"{prefix}  {inner['text']}".rstrip()


def _prefixes(lines: Sequence[str]) -> list[str]:
    """Returns the prefixes of tracebacks that the next line has, too."""
    prefixes: dict[str, None] = {}
    for number, line in enumerate(lines):
        if match := _START.match(line):
            is_on_all = all(following.startswith(match["prefix"]) for following in lines[number + 1 : number + 2])
            prefixes[match["prefix"] if is_on_all else ""] = None
        if len(prefixes) == _MAX_PREFIXES:
            break
    return [*prefixes]


def _lines_of(lines: Sequence[str], prefix: str, prefixes: Sequence[str]) -> list[_Line]:
    """Returns the lines with a prefix, without it; for an empty prefix, the lines without any of the prefixes."""
    matching = []
    for number, line in enumerate(lines):
        if prefix and line.startswith(prefix.rstrip()):
            matching.append(_Line(number, line.removeprefix(prefix.rstrip()).removeprefix(" "), has_prefix=True))
        elif not prefix and not any(other and line.startswith(other.rstrip()) for other in prefixes):
            matching.append(_Line(number, line))
    return matching


def _last_chain(lines: Sequence[_Line], launchers: int = _MAX_LAUNCHERS) -> _Chain | None:
    contents = [line.text for line in lines]
    starts = [number for number, text in enumerate(contents) if _START.match(text)]
    while starts:
        last = starts[-1]
        end = _end_of_block(contents, last)
        is_launchers = any(_exception_type(text).endswith(_LAUNCHER_ERRORS) for text in contents[last:end])
        if is_launchers and len(starts) > 1:
            starts.pop()
            continue
        first = _first_of_chain(contents, starts)
        chain = [_START.sub(_without_prefix, contents[first]), *contents[first + 1 : end]]
        last_chain = _Chain(lines[first].number, lines[end - 1].number, tuple(chain), lines[first].has_prefix)
        return _with_process(lines[:first], last_chain, launchers) if launchers else last_chain
    return None


def _last_syntax_error(lines: Sequence[_Line]) -> _Chain | None:
    """Returns the last syntax error of a program that Python could not start: location, code and error."""
    for end in range(len(lines) - 1, 0, -1):
        if _SYNTAX_ERROR.match(lines[end].text):
            for start in range(end - 1, max(end - _MAX_LOCATION_LINES, 0) - 1, -1):
                if _LOCATION.match(lines[start].text):
                    contents = tuple(line.text for line in lines[start : end + 1])
                    return _Chain(lines[start].number, lines[end].number, contents, lines[start].has_prefix)
    return None


def _with_process(before: Sequence[_Line], chain: _Chain, launchers: int) -> _Chain:
    """Returns the chain; for a launcher, after the chain of the process that the launcher has started."""
    if not _CHILD_FAILED.match(root_cause("\n".join(chain.lines))):
        return chain
    process = _last_chain(before, launchers - 1) or _last_syntax_error(before)
    if process is None or chain.number - process.last_number > _MAX_LINES_BETWEEN:
        return chain
    both = (*process.lines, "", _STARTED_BY, "", *chain.lines)
    return replace(process, last_number=chain.last_number, lines=both)


def _without_prefix(match: re.Match[str]) -> str:
    return f"{match['mark'] if match['mark'].strip() else ''}Traceback (most recent call last):"


def _first_of_chain(lines: Sequence[str], starts: Sequence[int]) -> int:
    """Returns the first line of the chain that ends with the last of these tracebacks."""
    *earlier, first = starts
    while (link := _link_before(lines, first)) is not None:
        before = [start for start in earlier if start < link]
        if not before or _end_of_block(lines, before[-1], max_end=link) < _last_text_before(lines, link):
            headless = _last_text_before(lines, link) - 1  # an exception that was never raised has no traceback
            if _EXCEPTION.match(lines[headless]) and _exception_type(lines[headless])[:1].isupper():
                return headless
            if not before:
                return first
        first = before[-1]
        # Mixed tracebacks of several processes: those that begin before the last one ends belong together.
        while len(before) > 1 and _end_of_block(lines, before[-2], max_end=link) > first:
            before.pop()
            first = before[-1]
        earlier = before[:-1]
    while earlier and _is_open(lines[earlier[-1] : first]):
        first = earlier.pop()
    return first


def _link_before(lines: Sequence[str], start: int) -> int | None:
    """Returns the line with the sentence that links a traceback to the previous one."""
    number = start - 1
    while number >= 0 and not lines[number].strip():
        number -= 1
    return number if number >= 0 and lines[number].strip() in _LINKS else None


def _last_text_before(lines: Sequence[str], number: int) -> int:
    """Returns the end of the text before a line: one more than the number of the last line that is not blank."""
    while number > 0 and not lines[number - 1].strip():
        number -= 1
    return number


def _is_open(lines: Sequence[str]) -> bool:
    """Returns True if a traceback at the first line has not reached its exception."""
    return not any(not text.startswith(" ") and _EXCEPTION.match(text) for text in lines[1:])


def _end_of_block(lines: Sequence[str], start: int, *, max_end: int | None = None) -> int:
    """Returns one more than the number of the last line of a traceback, with the message of its exception."""
    limit = len(lines) if max_end is None else max_end
    number = start + 1
    if "Exception Group" in lines[start]:
        while number < limit and _GROUP_LINE.match(lines[number]):
            number += 1
        return number
    is_open = 1
    while number < limit and is_open:
        if _START.match(lines[number]):
            is_open += 1
        elif not lines[number].startswith(" ") and _EXCEPTION.match(lines[number]):
            is_open -= 1
        number += 1
    end = number
    while end < len(lines) and lines[end].strip() and not _START.match(lines[end]):
        end += 1
    is_at_the_end = not any(text.strip() for text in lines[end:])
    return end if is_at_the_end and end - number <= _MAX_MESSAGE_LINES else number


# ---- display


def _blocks(traceback: str) -> list[list[str]]:
    """Returns the lines of each exception of a chain; from the second on they start with the linking sentence."""
    blocks: list[list[str]] = [[]]
    for line in traceback.splitlines():
        if line.strip() in (*_LINKS, _STARTED_BY) and not line.startswith(" "):
            while blocks[-1] and not blocks[-1][-1].strip():
                blocks[-1].pop()
            blocks.append(["", line, ""])
        elif not (len(blocks[-1]) == 3 and not line.strip() and len(blocks) > 1):
            blocks[-1].append(line)
    return blocks


def _exception_line(block: Sequence[str]) -> str:
    start = next((number for number, line in enumerate(block) if _START.match(line)), -1)
    body = block[start + 1 :]
    if start >= 0 and "Exception Group" in block[start]:
        body = [line.lstrip(" |") for line in body if not line.lstrip(" |").startswith(("File ", "+-"))]
    return next((line.strip() for line in body if not line.startswith(" ") and _EXCEPTION.match(line)), "")


def _exception_type(line: str) -> str:
    return line.partition(":")[0].rpartition(".")[2].strip()


def _short_block(block: Sequence[str]) -> list[str]:
    start = next((number for number, line in enumerate(block) if _START.match(line)), None)
    if start is None:
        return [*block]
    head, body = [*block[: start + 1]], [*block[start + 1 :]]
    if "Exception Group" in block[start]:
        return [*head, *body[:_MAX_GROUP_LINES], *(["  | …"] if len(body) > _MAX_GROUP_LINES else [])]
    frames = next((number for number, line in enumerate(body) if not line.startswith(" ")), len(body))
    if frames <= _MAX_FRAME_LINES + 1:
        return [*head, *body]
    min_start = frames - _MAX_FRAME_LINES
    start_at = next((n for n in range(min_start, frames) if body[n].lstrip().startswith("File ")), min_start)
    return [*head, "  …", *_last_user_frame(body[:start_at], body[start_at:frames]), *body[start_at:]]


def _last_user_frame(omitted: Sequence[str], displayed: Sequence[str]) -> list[str]:
    """Returns the last omitted frame of the user's code, if all displayed frames are of libraries."""
    if any(_is_user_frame(line) for line in displayed):
        return []
    start = next((number for number in range(len(omitted) - 1, -1, -1) if _is_user_frame(omitted[number])), None)
    if start is None:
        return []
    end = next(
        (n for n in range(start + 1, len(omitted)) if omitted[n].lstrip().startswith("File ")), len(omitted)
    )
    return [*omitted[start:end], *(["  …"] if end < len(omitted) else [])]


def _is_user_frame(line: str) -> bool:
    return line.lstrip().startswith('File "') and not _LIBRARY.search(line)
