"""Decides how long the packages installed for a list of requirements can serve other jobs, and why pip failed.

An installation is stored under a digest of the list. A list of exact versions always means the same packages; any
other list may mean newer ones on the next day, and a list that names files of the job differs in each job.

Standard library only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence

EXACT = "exact"
"""All versions are exact: an installation stays valid."""
PIP_INSTALL_SCRIPT = """\
import fcntl, os, subprocess, sys

try:
    lock = open(os.path.join(sys.prefix, ".pai_sdk-pip.lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
except OSError:
    pass
# Debian's Python refuses without it, even to root in a container.
os.environ.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *sys.argv[1:]]))
"""
"""A program that runs `pip install`: instances that share their packages take turns."""
_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION = re.compile(r"-")
# Options that name files, and requirements that are files: paths, links to files, archives beside the code.
_FILE_REQUIREMENT = re.compile(
    r"-[rcef]|--(requirement|constraint|editable|find-links)\b|[./~\\]|.*(file:|\$\{|@\s*[./~])"
)
_ARCHIVE = re.compile(r".*\.(whl|zip|tgz|tar\.\w+)\s*(\[[^]]*\])?\s*(;.*)?$")
_URL = re.compile(r"(?:[^;]*@\s*)?[a-z+]+://")
_EXACT_URL = re.compile(r"[#&]sha(256|384|512)=[0-9a-f]+|@[0-9a-f]{40}\b")
_EXACT_VERSION = re.compile(r"[\w.-]+\s*(\[[^]]*\])?\s*(===\s*\S+|==\s*[^\s,;*]+)\s*(--hash=\S+\s*)*(;.*)?$")

_ERROR = re.compile(r"^ERROR: (?!Could not find a version)(.+)$", re.MULTILINE)
_PIP_NO_RESPONSE = re.compile(r"^WARNING: Retrying .* after connection broken by '(.*)': /", re.MULTILINE)
_PIP_BUILD = re.compile(r"^\s*(\S.*)\n\s*\[end of output\]$", re.MULTILINE)
_OBJECT = re.compile(r"^.*(?:object at 0x\w+>|\(host=[^)]*\)): ")
_MAX_PROBLEM_CHARS = 300


def reuse_period(contents: Sequence[str], *, now: float | None = None) -> str:
    """Returns how long packages installed for these requirement files can be used by other jobs.

    `EXACT`: forever, since all versions are exact. A date: on that day only, in UTC. Empty: not at all, since the
    list names files, which may change.
    """
    if has_files(contents):
        return ""
    lines = _lines(contents)
    return EXACT if all(_is_exact(line) for line in lines) else today(now)


def has_files(contents: Iterable[str]) -> bool:
    """Returns whether requirement files name other files."""
    return any(_FILE_REQUIREMENT.match(line) or _is_file(line) for line in _lines(contents))


def today(now: float | None = None) -> str:
    """Returns the date in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(now))


def _lines(contents: Iterable[str]) -> Iterable[str]:
    for content in contents:
        for line in re.sub(r"\\\r?\n", " ", content.lstrip("\ufeff")).splitlines():
            if bare := _COMMENT.sub("", line).strip():
                yield bare


def _is_file(line: str) -> bool:
    if _OPTION.match(line) or _URL.match(line):
        return False
    return "/" in line.partition(";")[0] or bool(_ARCHIVE.match(line))


def _is_exact(line: str) -> bool:
    if _OPTION.match(line):
        return line not in ("--pre", "--upgrade", "-U")
    return bool(_EXACT_URL.search(line)) if _URL.match(line) else bool(_EXACT_VERSION.match(line))


def pip_problem(output: str) -> str:
    r"""Returns why pip failed, from its output; empty if unknown."""
    problem = "; ".join(filter(None, [_last_match(_ERROR, output), _build_error(output), _index_error(output)]))
    return problem[:_MAX_PROBLEM_CHARS]


def _build_error(output: str) -> str:
    last_line = _last_match(_PIP_BUILD, output)
    return f"a package could not be built: {last_line}" if last_line else ""


def _index_error(output: str) -> str:
    """Returns the warning that no index responds."""
    # pip then only reports that it finds no version.
    cause = _last_match(_PIP_NO_RESPONSE, output)
    return f"the package index does not respond: {_OBJECT.sub('', cause).rstrip(chr(39) + ')')}" if cause else ""


def _last_match(pattern: re.Pattern[str], output: str) -> str:
    matches = pattern.findall(output)
    return matches[-1].strip().rstrip(".:") if matches else ""
