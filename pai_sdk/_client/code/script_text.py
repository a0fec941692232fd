"""Reads text in the encodings of editors; checks text that only the job's shell reads: line ends, encodings."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pai_sdk._data.storage.tree import FileTree
from pai_sdk.errors import Problem

_MARKS = (  # the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decoded(content: bytes, *, errors: str = "strict") -> str:
    """Returns the text of a file, without its byte order mark; `ValueError` if it is not UTF-8 and has no mark."""
    encoding = next((encoding for mark, encoding in _MARKS if content.startswith(mark)), None)
    if encoding is not None:
        return content.decode(encoding)
    if b"\0" in content:
        raise ValueError("it has zero bytes, as UTF-16 without a byte order mark")
    return content.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors=errors)


WINDOWS_LINE_END = "ends with a carriage return, as a line of a Windows file does"

SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_INTERPRETERS = ("python", "python3", "sh", "bash")
RUNNERS = {".py": "python", ".sh": "bash"}
"""The program that runs a script, by the suffix of the script."""
_REQUIREMENTS = "requirements.txt"
_MARK = b"\xef\xbb\xbf"
_READ_BYTES = 1 << 20  # of a script
_WORD = re.compile(r"[^\s;&|()<>'\"`]+")
_COMMAND = re.compile(r"(?:[<>]&|&>|>\||[^;&\n|])+")
PROGRAM = re.compile(r"[\s({!]*(?:(?:\w+=\S*|do|then|else|time|exec|nohup|env)\s+)*([^\s()]+)")


def unix_text(script: str) -> str:
    """Returns the text of a shell script with the line ends that a shell expects, without a byte order mark."""
    return script.removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\r")


def is_windows_line(text: str) -> bool:
    """Returns True if a string is one line of a Windows file, with half of its line end."""
    return text.endswith("\r") and "\n" not in text


def is_shell(command: Sequence[str]) -> bool:
    """Returns True if the last part of a command is a shell script, as in `["bash", "-c", "…"]`."""
    return len(command) > 2 and command[0].rpartition("/")[2] in SHELLS and bool(re.match(r"-\w*c", command[-2]))


def first_script(command: Sequence[str]) -> str | None:
    """Returns the Python or shell script that a command starts first; None unless that is certain."""
    tokens = _first_tokens(command)
    if len(tokens) < 2 or tokens[0] not in _INTERPRETERS:
        return None
    script = tokens[1].rstrip(";").removeprefix("./")
    return None if not script.endswith((".py", ".sh")) or "$" in script or ".." in script else script


def script_as_program(command: Sequence[str]) -> str | None:
    """Returns the name of a script in place of the program, as in `train.py --lr 0.1`; None without one."""
    # A shell searches a name without a slash in PATH only, where a folder of code is not.
    name = (_first_tokens(command) or [""])[0].rstrip(";")
    return name if name.endswith(tuple(RUNNERS)) and not {*"/$"} & {*name} else None


def _first_tokens(command: Sequence[str]) -> list[str]:
    """Returns the words of a command, or of the first line of its shell script; empty if they are not certain."""
    if [*command[:2]] not in (["sh", "-c"], ["bash", "-c"]):
        return [*command]
    first_line = command[2].strip().splitlines()[0] if len(command) > 2 and command[2].strip() else ""
    try:
        return shlex.split(first_line, comments=True)
    except ValueError:
        return []


def programs_in(script: str) -> Iterator[str]:
    """Yields the programs that a shell script starts, as far as they are certain."""
    for command in _COMMAND.finditer(script):
        if program := PROGRAM.match(command[0]):
            yield program[1]


def file_problems(command: Sequence[str], tree: FileTree) -> Iterator[Problem]:
    """Yields the files of the code that a shell, Python or pip cannot read unchanged."""
    script = command[-1] if is_shell(command) else ""
    paths = {word.removeprefix("./") for word in (_WORD.findall(script) if script else command)}
    programs = {name.removeprefix("./") for name in (programs_in(script) if script else command[:1])}
    for entry in tree.entries:
        if entry.path == _REQUIREMENTS:
            yield from _requirements_problems(tree.root / entry.path)
        elif entry.path in paths:
            yield from _script_problems(tree.root, entry.path, is_program=entry.path in programs)


def _requirements_problems(file: Path) -> Iterator[Problem]:
    try:
        decoded(file.read_bytes())
    except OSError:
        # Reported later, when the files are read.
        return
    except ValueError as error:  # of UnicodeDecodeError too
        message = f"is in an encoding that pip does not recognise: {error}"
        yield Problem(_REQUIREMENTS, message, "save it as UTF-8")


def _script_problems(root: Path, path: str, *, is_program: bool) -> Iterator[Problem]:
    try:
        with (root / path).open("rb") as file:
            content = file.read(_READ_BYTES)
    except OSError:
        return
    first = content.partition(b"\n")[0]
    shebang = first.removeprefix(_MARK).startswith(b"#!")
    is_script = path.endswith((".sh", ".bash")) or (shebang and b"sh" in first.rpartition(b"/")[2])
    if (is_script or path.endswith(".py")) and b"\0" in content[:1024]:
        yield Problem(path, "is not UTF-8, but UTF-16 or binary", "save it as UTF-8")
    elif content.startswith(_MARK) and (is_script or (shebang and is_program)):
        yield Problem(
            path, "starts with a byte order mark (BOM), which a script must not have", "save it as UTF-8"
        )
    elif is_script and b"\r\n" in content:
        message = "has Windows line endings (CRLF), which a shell reads as part of names and values"
        yield Problem(path, message, "save it with Unix line endings (LF), such as with dos2unix")
    elif shebang and is_program and first.endswith(b"\r"):
        message = "has Windows line endings (CRLF), so its interpreter is not found"
        yield Problem(path, message, "save it with Unix line endings (LF), such as with dos2unix")
