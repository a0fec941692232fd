"""Checks regular expressions from clients by compiling them in a process with limits.

A pattern of 30 characters, such as `(?:(?:a{1000}){1000}){1000}`, can take gigabytes to compile. This cannot be
estimated, so a short-lived process compiles it first, with bounded memory and processor time.
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

_MAX_PATTERN_LENGTH = 4096
_MEMORY_BYTES = 16 << 20  # for all patterns of one request; a usual pattern takes some KiB
_CPU_S = 2
_PATIENCE_S = 60.0  # for a busy machine; hostile patterns reach the limit of processor time first
_CACHED_VERDICTS = 32

_BOOT = f"import sys; sys.path.append(sys.argv.pop(1)); from {__name__} import main; main()"
_READY = "ready"
_TOO_LONG = f"has more than {_MAX_PATTERN_LENGTH} characters"
_TOO_LARGE = "cannot be read: compiling it takes too much memory or time; use smaller counts in its {}"
_NO_GROUP = "has no group; put the value in one: loss=([0-9.]+)"


def pattern_problems(patterns: Sequence[str], *, readable: bool = True) -> list[str]:
    """Returns the problem of each pattern, or an empty string; only of its size unless `readable`."""
    distinct = tuple(dict.fromkeys(patterns))
    problems = dict(zip(distinct, _verdicts(distinct), strict=True))
    return [problems[text] if readable or problems[text] in (_TOO_LONG, _TOO_LARGE) else "" for text in patterns]


@lru_cache(_CACHED_VERDICTS)
def _verdicts(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the problem of each pattern. Cached, since the same algorithm is often submitted many times."""
    short = [text for text in patterns if len(text) <= _MAX_PATTERN_LENGTH]
    problems = dict(zip(short, _compile_in_process(short), strict=True)) if short else {}
    return tuple(problems.get(text, _TOO_LONG) for text in patterns)


def _compile_in_process(patterns: Sequence[str]) -> list[str]:
    package_parent = str(Path(__file__).resolve().parents[__name__.count(".")])
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
    problems = [json.loads(line) for line in lines]
    if len(problems) < len(patterns):
        problems.append(_TOO_LARGE)  # the process was killed at this pattern; later ones were not checked
    return [*problems, *repeat("", len(patterns) - len(problems))]


def main() -> None:
    """Compiles the patterns of standard input, and prints a line with the problem of each."""
    patterns: list[str] = json.load(sys.stdin)
    size_bytes = psutil.Process().memory_info().vms
    with suppress(ValueError, OSError):  # macOS has reserved more address space than the limit
        resource.setrlimit(resource.RLIMIT_AS, (size_bytes + _MEMORY_BYTES, size_bytes + _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _print_line(_READY)
    compiled_patterns = []  # the limit applies to all of them, since the service keeps all in memory
    for text in patterns:
        problem = ""
        try:
            compiled_patterns.append(compiled := regex.compile(text, cache_pattern=False))
            problem = "" if compiled.groups else _NO_GROUP
        except MemoryError:
            problem = _TOO_LARGE
        except (regex.error, RecursionError, OverflowError) as error:
            problem = f"cannot be read: {error}"
        _print_line(json.dumps(problem))


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # the process may be killed at the next pattern
