"""Generated changes of code, data, environment: an earlier execution counts or not, as docs/pipelines.md says."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pai_sdk._client.pipeline import Pipeline
from pai_sdk._data.pipelines.records import StepRecord

__all__ = ["CHANGES", "Change", "main", "outcome", "run_trial"]

_HELPERS = """
import functools, os, threading
from enum import IntEnum
from pathlib import Path

RATE = {rate}
KEYS = {{{key}: 1}}
class Number(int):
    def shown(self):
        return {global_class}

NUMBER = Number(1)

class Level(IntEnum):
    LOW = {enum}

LEVEL = Level.LOW

class Base:
    def base(self):
        return {base}

class Guarded(Base):
    limit = {attribute}
    def __init__(self):
        self.lock = threading.Lock()
        self.state = {state}
    def method(self):
        return {method}
    @property
    def prop(self):
        return {prop}
    @functools.cached_property
    def cached(self):
        return {cached_property}
    @classmethod
    def made(cls):
        return {classmethod}

GUARDED = Guarded()

def decorated(factor):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return [factor, {decorator}, function(*args, **kwargs)]
        return wrapper
    return decorate

@functools.lru_cache
def remembered():
    return {lru_cache}

@functools.singledispatch
def shown(value):
    return {dispatch_default}

@shown.register
def _(value: int):
    return {dispatch_int}

@decorated({factor})
def wrapped():
    return {wrapped}

def helper():
    {comment}
    return {helper}
"""
_STEPS = """
{comment}
import os, threading
from pathlib import Path
import helpers
from helpers import helper, remembered, shown, wrapped, decorated, GUARDED, NUMBER, RATE, LEVEL

LOCK = threading.Lock()

def around(value):
    lock = threading.Lock()
    def inner():
        with lock:
            return value
    return inner

inner = around({closure})

@decorated({own_factor})
def step(value, files, default={default}, *, keyword={keyword}):
    import json
    with LOCK:
        texts = [path.read_text() for path in files["of"]]
    return json.loads(json.dumps([
        {step}, str(value), texts, default, keyword, RATE, str(helpers.KEYS),
        NUMBER.shown(), int(LEVEL), GUARDED.base(), GUARDED.limit, GUARDED.state, GUARDED.method(), GUARDED.prop,
        GUARDED.__class__().cached, GUARDED.made(), remembered(), shown("a"), shown(1), wrapped(),
        helper(), inner(),
        (lambda: {lambda_})(), [{comprehension} for _ in "ab"],
    ]))
"""
_CODE = tuple(dict.fromkeys(re.findall(r"{(\w+)}", _HELPERS + _STEPS)))  # "comment" is among them
_DATA = ("argument", "argument type", "argument key", "file", "relative file", "linked file")
_NOTHING = ("comment", "environ", "working file", "nothing")


@dataclass(frozen=True)
class Change:
    """A part that changes between two runs, and whether the earlier execution counts then."""

    part: str
    is_hit: bool


CHANGES = (
    *(Change(part, is_hit=False) for part in (*_CODE, *_DATA) if part != "comment"),
    *(Change(part, is_hit=True) for part in _NOTHING),
)


def outcome(folder: Path, change: Change, before: int, after: int) -> list[str]:
    """Runs a step before and after a change; returns what is wrong."""
    wrong = []
    first = _run(folder, change.part, before)
    second = _run(folder, change.part, after)
    if (second.status == "cached") != change.is_hit:
        wrong.append(f"{change.part} from {before} to {after}: {second.status}, {second.reason}")
    if not change.is_hit and second.result == first.result:
        wrong.append(f"{change.part}: has no effect on the result; the trial is wrong")
    return wrong


def _run(folder: Path, part: str, number: int) -> StepRecord:
    parts: dict[str, Any] = dict.fromkeys(_CODE, 0) | {"comment": "# one"}
    if part == "comment":
        parts["comment"] = f"# {number}" + f"\n    # {number}" * (number % 3)
    elif part in _CODE:
        parts[part] = number
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "helpers.py").write_text(_HELPERS.format(**parts))
    (code / "steps.py").write_text(_STEPS.format(**parts | {"comment": parts["comment"].replace("\n    ", "\n")}))
    value: Any = {"argument": number, "argument type": [float, int][number % 2](number)}.get(part, 7)
    if part == "argument key":
        value = {number // 2 if number % 2 else str(number // 2): 1}
    files = {name: folder / name for name in ("file", "relative file", "linked file", "working file")}
    for name, file in files.items():
        _write(file, number if name == part else 0)
    link = folder / "link"
    if not link.is_symlink():
        link.symlink_to("linked file")
    environ = {"NUMBER": str(number)} if part == "environ" else {}
    with _at(folder, code, environ):
        step = importlib.import_module("steps").step
        pipeline = Pipeline("trial", store=folder / "store")
        arguments = {"value": value, "files": {"of": [files["file"], Path("relative file"), Path("link")]}}
        pipeline.step(step, name="one", arguments=arguments)
        return pipeline.run(show=False)["one"]


def _write(file: Path, number: int) -> None:
    if not file.exists() or file.read_text() != str(number):
        file.write_text(str(number))


@contextmanager
def _at(folder: Path, code: Path, environ: dict[str, str]) -> Iterator[None]:
    here, written = Path.cwd(), sys.dont_write_bytecode
    os.chdir(folder)
    sys.path.insert(0, str(code))
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    os.environ.update(environ)
    try:
        yield
    finally:
        for name in ("helpers", "steps"):
            sys.modules.pop(name, None)
        for name in environ:
            os.environ.pop(name)
        sys.path.remove(str(code))
        sys.dont_write_bytecode = written
        os.chdir(here)


def run_trial(changes: int, *, of: Sequence[Change] = CHANGES) -> None:
    """Tries so many generated changes.

    Raises:
        AssertionError: an earlier execution was taken where it should not be, or the other way round.
    """
    two = st.lists(st.integers(1, 1_000), min_size=2, max_size=2, unique=True)

    @settings(
        max_examples=changes, deadline=None, database=None, suppress_health_check=[*HealthCheck], derandomize=True
    )
    @given(st.sampled_from([*of]), two)
    def try_one(change: Change, numbers: list[int]) -> None:
        if change.part in ("argument type", "argument key"):  # the same number as another type
            numbers = [2 * numbers[0], 2 * numbers[0] + 1]
        with tempfile.TemporaryDirectory() as folder:
            assert outcome(Path(folder), change, *numbers) == []

    attempt: Callable[[], None] = try_one
    attempt()


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=200)
    given_ = parser.parse_args(arguments)
    run_trial(given_.changes)
    sys.stdout.write(f"{given_.changes} changes, each a hit or a miss as documented\n")
    return 0
