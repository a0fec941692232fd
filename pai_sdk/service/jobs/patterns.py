"""Regular expressions that clients send, checked by compiling them in a process with limits.

A pattern of 30 characters, such as `(?:(?:a{1000}){1000}){1000}`, can take gigabytes to compile. How much it takes
is known only by compiling it, so a short-lived process does that first, with bounded memory and processor time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from pathlib import Path

import psutil
import regex

__all__ = ["main", "pattern_problems"]

_LONGEST_PATTERN = 4096
_MEMORY_BYTES = 16 << 20  # for all patterns of one request; an ordinary one takes some kilobytes
_CPU_S = 2
_PATIENCE_S = 60.0  # for a machine that is busy: it is the limit of processor time that ends a hostile pattern
_KEPT_VERDICTS = 32

_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from pai_sdk.service.jobs.patterns import main; main()"
_READY = "ready"
_TOO_LONG = f"has more than {_LONGEST_PATTERN} characters"
_TOO_LARGE = "cannot be read: compiling it takes too much memory or time; use smaller counts in its {}"
_NO_GROUP = "has no group; put the value in one: loss=([0-9.]+)"


def pattern_problems(patterns: Sequence[str], *, readable: bool = True) -> list[str]:
    """Returns the problem of each pattern; empty text for a good one.

    Args:
        patterns: regular expressions from a request.
        readable: each must be one, with a group, as a metric's; otherwise each only has to be small enough.

    Example:
        >>> pattern_problems(["loss=([0-9.]+)", "loss"])
        ['', 'has no group; put the value in one: loss=([0-9.]+)']
    """
    distinct = tuple(dict.fromkeys(patterns))
    found = dict(zip(distinct, _verdicts(distinct), strict=True))
    return [found[text] if readable or found[text] in (_TOO_LONG, _TOO_LARGE) else "" for text in patterns]


@lru_cache(_KEPT_VERDICTS)
def _verdicts(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The problem of each pattern. Cached, since the same algorithm is submitted many times."""
    short = [text for text in patterns if len(text) <= _LONGEST_PATTERN]
    found = dict(zip(short, _compile_elsewhere(short), strict=True)) if short else {}
    return tuple(found.get(text, _TOO_LONG) for text in patterns)


def _compile_elsewhere(patterns: Sequence[str]) -> list[str]:
    package_parent = str(Path(__file__).resolve().parents[3])
    command = [sys.executable, "-c", _BOOT, package_parent]
    try:
        done = subprocess.run(
            command, input=json.dumps(patterns).encode(), capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [_TOO_LARGE] * len(patterns)
    ready, *lines = done.stdout.decode().splitlines() or [""]
    if ready != _READY:
        raise RuntimeError(f"the process that compiles patterns did not start: {done.stderr.decode()[-500:]}")
    found = [json.loads(line) for line in lines]
    if len(found) < len(patterns):
        found.append(_TOO_LARGE)  # the one at which the process was killed; those behind it are not known
    return [*found, *repeat("", len(patterns) - len(found))]


def main() -> None:
    """Compile the patterns on standard input, and write a line with the problem of each."""
    patterns: list[str] = json.load(sys.stdin)
    size_bytes = psutil.Process().memory_info().vms
    with suppress(ValueError, OSError):  # macOS reserves more addresses than it lets a process limit
        resource.setrlimit(resource.RLIMIT_AS, (size_bytes + _MEMORY_BYTES, size_bytes + _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _say(_READY)
    kept = []  # all together have to fit, as they will in the service
    for text in patterns:
        problem = ""
        try:
            kept.append(compiled := regex.compile(text, cache_pattern=False))
            problem = "" if compiled.groups else _NO_GROUP
        except MemoryError:
            problem = _TOO_LARGE
        except (regex.error, RecursionError, OverflowError) as error:
            problem = f"cannot be read: {error}"
        _say(json.dumps(problem))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # it may be killed at the next pattern
