"""Finds the traceback that ended a program in its log: with all exceptions of its chain, the root cause first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

# Not within an exception group, where two spaces and a bar come before it.
_START = re.compile(
    r"(?!(?:.*\s)?\s+\|)(?P<prefix>.*?)(?P<mark>  \+ Exception Group |\s*)"
    r"Traceback \(most recent call last\):\s*$",
    re.DOTALL,
)
_EXCEPTION = re.compile(r"[^\W\d][\w.<>]*(?::\s.*|:)?$", re.DOTALL)
_GROUP_LINE = re.compile(r"\s+[|+]")
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
# What torchrun raises about the program that it has started; the traceback of that program comes before it.
_OF_A_LAUNCHER = ("ChildFailedError",)
# What `subprocess.run(check=True)`, `accelerate launch` and pools raise about a process that has failed. Python
# ends with 1 after an exception, so another exit status is no sign of a traceback before it.
_CHILD_FAILED = re.compile(
    r"(?:[\w.]+\.)?(?:CalledProcessError: .* returned non-zero exit status 1\.?$"
    r"|ProcessExitedException: .* exit code 1$|BrokenProcessPool\b"
    r"|RuntimeError: Horovod detected that one or more processes exited with non-zero status)",
    re.DOTALL,
)
_STARTED_BY = "The program above, which failed with that exception, was started by this one:"
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")
# Tracebacks that IPython (also by nbconvert and papermill) and rich have framed.
_OF_IPYTHON = re.compile(
    r"(?P<prefix>(?:\[[^\]]*\]: ?)?)(?P<type>[^\W\d][\w.]*) +Traceback \(most recent call last\)\s*$"
)
_OF_RICH = re.compile(r"(?P<prefix>(?:\[[^\]]*\]: ?)?)[╭+][─-]+ Traceback \(most recent call last\) [─-]+[╮+]\s*$")
_RICH_LINE = re.compile(r"[│|] (?P<text>.*?)\s*[│|]\s*$")
_RICH_END = re.compile(r"[╰+][─-]+[╯+]\s*$")
_PLAIN_START = "Traceback (most recent call last):"
_MAX_FRAMED_LINES = 400
_MOST_LINES_BETWEEN = 60  # from the traceback of a process to that of its launcher: the last words of either
_SYNTAX_ERROR = re.compile(r"(?:Syntax|Indentation|Tab)Error: .")
_PLACE = re.compile(r'  File ".*", line [0-9]+$')
_MOST_PLACE_LINES = 4  # from the place of an error in the syntax to the error: the code, and its mark
_LIBRARY = re.compile(r'/(?:site|dist)-packages/|/lib/python3[.\d]*/|File "<frozen ')
_MOST_MESSAGE_LINES = 8  # of an exception whose message has several lines, at the end of a log
_SHOWN_FRAME_LINES = 6  # of each exception: two frames, with their marks
_SHOWN_BLOCKS = 4
_SHOWN_GROUP_LINES = 24


def find_traceback(lines: Iterable[str]) -> str:
    r"""The last Python traceback in a log's last lines, or an empty text.

    Exceptions that Python has chained belong to it, the root cause first, and so do those of an exception group.
    Lines of several processes may be mixed, if each line has a prefix (`[rank1]: `), as those of torchrun: then
    it is the first traceback among those with a prefix. If the last traceback is that of a launcher whose process
    has failed (`CalledProcessError`), the traceback of that process comes before it. An error in the syntax of the
    program itself has no traceback, but the place of the error, which is returned. Colours are removed, and
    tracebacks of IPython, papermill and rich are written as those of Python.

    Example:
        >>> find_traceback(["ok", "Traceback (most recent call last):", "  File 'a.py', line 1", "KeyError: 3"])
        "Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 3"
    """
    lines = _unframed([_COLOUR.sub("", line) for line in lines])
    prefixes = _prefixes(lines)
    found = [chain for prefix in prefixes if (chain := _last_chain(_lines_of(lines, prefix, prefixes)))]
    first = min(found, key=lambda chain: (not chain.has_prefix, chain.number), default=None)
    if first is None:
        error = _last_syntax_error([_Line(number, line) for number, line in enumerate(lines)])
        first = error if error and len(lines) - error.last_number <= _MOST_MESSAGE_LINES else None
    return "\n".join(first.lines) if first else ""


def root_cause(traceback: str) -> str:
    r"""The line of the exception that a chain began with, as `find_traceback` gives the chain.

    Example:
        >>> root_cause("Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 3")
        'KeyError: 3'
    """
    return _exception_of(_blocks(traceback)[0]) if traceback else ""


def is_of_a_launcher(cause: str) -> bool:
    """Return whether an exception only reports that another program has failed.

    Example:
        >>> is_of_a_launcher("subprocess.CalledProcessError: Command 'make' returned non-zero exit status 2.")
        True
    """
    return bool(_CHILD_FAILED.match(cause)) or _type_of(cause) in ("CalledProcessError", *_OF_A_LAUNCHER)


def shortened(traceback: str) -> list[str]:
    """The lines of a chain to show: of each exception its last frames, of a long chain its first and last ones."""
    blocks = _blocks(traceback)
    shown: list[str] = []
    for number, block in enumerate(blocks):
        left_out = len(blocks) - _SHOWN_BLOCKS
        if left_out > 0 and 1 < number < len(blocks) - 2:
            if number == 2:
                shown += ["", f"… {left_out} more exceptions …"]
            continue
        shown += _short_block(block)
    return shown


# ---- finding


@dataclass(frozen=True)
class _Line:
    """A line of the program that the search is for: its number in the log, and its text without the prefix."""

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
    """Writes tracebacks of IPython and rich as Python does, with as many lines; others stay as they are."""
    for number, line in enumerate(lines):
        if match := _OF_IPYTHON.match(line):
            _unframe_ipython(lines, number, match)
        elif match := _OF_RICH.match(line):
            _unframe_rich(lines, number, match["prefix"])
    return lines


def _unframe_ipython(lines: list[str], start: int, header: re.Match[str]) -> None:
    """Indents all lines of a traceback of IPython but its last one, which begins with the type of the header."""
    prefix, kind = header["prefix"], header["type"]
    for end in range(start + 1, min(len(lines), start + _MAX_FRAMED_LINES)):
        if _type_of(lines[end].removeprefix(prefix)) == kind.rpartition(".")[2]:
            body = [f"{prefix}  {line.removeprefix(prefix)}".rstrip() for line in lines[start + 1 : end]]
            lines[start:end] = [f"{prefix}{_PLAIN_START}", *body]
            return


def _unframe_rich(lines: list[str], start: int, prefix: str) -> None:
    """Takes the frame from a traceback of rich; the exception stands below it."""
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
    """The prefixes of tracebacks, as far as the line that follows has them, too."""
    found: dict[str, None] = {}
    for number, line in enumerate(lines):
        if match := _START.match(line):
            is_on_all = all(following.startswith(match["prefix"]) for following in lines[number + 1 : number + 2])
            found[match["prefix"] if is_on_all else ""] = None
    return [*found]


def _lines_of(lines: Sequence[str], prefix: str, prefixes: Sequence[str]) -> list[_Line]:
    """The lines with a prefix, without it; for an empty prefix, those that have none of the others."""
    found = []
    for number, line in enumerate(lines):
        if prefix and line.startswith(prefix.rstrip()):
            found.append(_Line(number, line.removeprefix(prefix.rstrip()).removeprefix(" "), has_prefix=True))
        elif not prefix and not any(other and line.startswith(other.rstrip()) for other in prefixes):
            found.append(_Line(number, line))
    return found


def _last_chain(lines: Sequence[_Line]) -> _Chain | None:
    texts = [line.text for line in lines]
    starts = [number for number, text in enumerate(texts) if _START.match(text)]
    while starts:
        last = starts[-1]
        end = _end_of_block(texts, last)
        is_launchers = any(_type_of(text).endswith(_OF_A_LAUNCHER) for text in texts[last:end])
        if is_launchers and len(starts) > 1:
            starts.pop()
            continue
        first = _first_of_chain(texts, starts)
        chain = [_START.sub(_without_prefix, texts[first]), *texts[first + 1 : end]]
        found = _Chain(lines[first].number, lines[end - 1].number, tuple(chain), lines[first].has_prefix)
        return _with_process(lines[:first], found)
    return None


def _last_syntax_error(lines: Sequence[_Line]) -> _Chain | None:
    """The last error in the syntax of a program that Python could not start: its place, the code, the error."""
    for end in range(len(lines) - 1, 0, -1):
        if _SYNTAX_ERROR.match(lines[end].text):
            for start in range(end - 1, max(end - _MOST_PLACE_LINES, 0) - 1, -1):
                if _PLACE.match(lines[start].text):
                    texts = tuple(line.text for line in lines[start : end + 1])
                    return _Chain(lines[start].number, lines[end].number, texts, lines[start].has_prefix)
    return None


def _with_process(before: Sequence[_Line], chain: _Chain) -> _Chain:
    """The chain; if it is that of a launcher, with the chain of the process that the launcher has started."""
    if not _CHILD_FAILED.match(root_cause("\n".join(chain.lines))):
        return chain
    process = _last_chain(before) or _last_syntax_error(before)
    if process is None or chain.number - process.last_number > _MOST_LINES_BETWEEN:
        return chain
    both = (*process.lines, "", _STARTED_BY, "", *chain.lines)
    return replace(process, last_number=chain.last_number, lines=both)


def _without_prefix(match: re.Match[str]) -> str:
    return f"{match['mark'] if match['mark'].strip() else ''}Traceback (most recent call last):"


def _first_of_chain(texts: Sequence[str], starts: Sequence[int]) -> int:
    """The first line of the chain whose last traceback is the last of these."""
    *earlier, first = starts
    while (link := _link_before(texts, first)) is not None:
        before = [start for start in earlier if start < link]
        if not before or _end_of_block(texts, before[-1], at_most=link) < _last_text_before(texts, link):
            headless = _last_text_before(texts, link) - 1  # an exception that was never raised has no traceback
            if _EXCEPTION.match(texts[headless]) and _type_of(texts[headless])[:1].isupper():
                return headless
            if not before:
                return first
        first = before[-1]
        # Tracebacks of several processes, mixed: what begins before the last one ends belongs together.
        while len(before) > 1 and _end_of_block(texts, before[-2], at_most=link) > first:
            before.pop()
            first = before[-1]
        earlier = before[:-1]
    while earlier and _is_open(texts[earlier[-1] : first]):
        first = earlier.pop()
    return first


def _link_before(texts: Sequence[str], start: int) -> int | None:
    """The line with the words that link a traceback to the one before it."""
    number = start - 1
    while number >= 0 and not texts[number].strip():
        number -= 1
    return number if number >= 0 and texts[number].strip() in _LINKS else None


def _last_text_before(texts: Sequence[str], number: int) -> int:
    """The end of the text before a line: one more than the number of the last line that is not blank."""
    while number > 0 and not texts[number - 1].strip():
        number -= 1
    return number


def _is_open(texts: Sequence[str]) -> bool:
    """True if a traceback that begins there has not come to its exception."""
    return not any(not text.startswith(" ") and _EXCEPTION.match(text) for text in texts[1:])


def _end_of_block(texts: Sequence[str], start: int, *, at_most: int | None = None) -> int:
    """One more than the number of the last line of a traceback; its exception's message is the end of it."""
    limit = len(texts) if at_most is None else at_most
    number = start + 1
    if "Exception Group" in texts[start]:
        while number < limit and _GROUP_LINE.match(texts[number]):
            number += 1
        return number
    is_open = 1
    while number < limit and is_open:
        if _START.match(texts[number]):
            is_open += 1
        elif not texts[number].startswith(" ") and _EXCEPTION.match(texts[number]):
            is_open -= 1
        number += 1
    end = number
    while end < len(texts) and texts[end].strip() and not _START.match(texts[end]):
        end += 1
    is_at_the_end = not any(text.strip() for text in texts[end:])
    return end if is_at_the_end and end - number <= _MOST_MESSAGE_LINES else number


# ---- showing


def _blocks(traceback: str) -> list[list[str]]:
    """The lines of each exception of a chain; from the second on they begin with the words that link them."""
    blocks: list[list[str]] = [[]]
    for line in traceback.splitlines():
        if line.strip() in (*_LINKS, _STARTED_BY) and not line.startswith(" "):
            while blocks[-1] and not blocks[-1][-1].strip():
                blocks[-1].pop()
            blocks.append(["", line, ""])
        elif not (len(blocks[-1]) == 3 and not line.strip() and len(blocks) > 1):
            blocks[-1].append(line)
    return blocks


def _exception_of(block: Sequence[str]) -> str:
    start = next((number for number, line in enumerate(block) if _START.match(line)), -1)
    rest = block[start + 1 :]
    if start >= 0 and "Exception Group" in block[start]:
        rest = [line.lstrip(" |") for line in rest if not line.lstrip(" |").startswith(("File ", "+-"))]
    return next((line.strip() for line in rest if not line.startswith(" ") and _EXCEPTION.match(line)), "")


def _type_of(line: str) -> str:
    return line.partition(":")[0].rpartition(".")[2].strip()


def _short_block(block: Sequence[str]) -> list[str]:
    start = next((number for number, line in enumerate(block) if _START.match(line)), None)
    if start is None:
        return [*block]
    head, rest = [*block[: start + 1]], [*block[start + 1 :]]
    if "Exception Group" in block[start]:
        return [*head, *rest[:_SHOWN_GROUP_LINES], *(["  | …"] if len(rest) > _SHOWN_GROUP_LINES else [])]
    frames = next((number for number, line in enumerate(rest) if not line.startswith(" ")), len(rest))
    if frames <= _SHOWN_FRAME_LINES + 1:
        return [*head, *rest]
    least = frames - _SHOWN_FRAME_LINES
    cut = next((n for n in range(least, frames) if rest[n].lstrip().startswith("File ")), least)
    return [*head, "  …", *_last_own_frame(rest[:cut], rest[cut:frames]), *rest[cut:]]


def _last_own_frame(cut: Sequence[str], shown: Sequence[str]) -> list[str]:
    """The last frame of the user's code among those that are cut, if all that are shown are of libraries."""
    if any(_is_own_frame(line) for line in shown):
        return []
    start = next((number for number in range(len(cut) - 1, -1, -1) if _is_own_frame(cut[number])), None)
    if start is None:
        return []
    end = next((n for n in range(start + 1, len(cut)) if cut[n].lstrip().startswith("File ")), len(cut))
    return [*cut[start:end], *(["  …"] if end < len(cut) else [])]


def _is_own_frame(line: str) -> bool:
    return line.lstrip().startswith('File "') and not _LIBRARY.search(line)
