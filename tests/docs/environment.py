"""Makes environments with exactly what a page tells its reader to install, of links to installed packages.

A page that needs more than README's `pip install ".[service]"` says so in one line under its title:

    The examples need `pip install ".[service,tune]" pandas` in the clone ([extras](extras.md)).
"""

from __future__ import annotations

import os
import re
import sys
import venv
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

from pai_sdk._core.extras import DISTRIBUTION

__all__ = ["distributions_of", "make_environment", "needed_by"]

_README = f"{DISTRIBUTION}[service]"
_NEEDS = re.compile(
    r"^(?:The examples need|示例需要) `pip install \"\.(\[[a-z0-9,]+\])\"((?: [\w-]+)*)`", re.MULTILINE
)
_TOP = 8  # lines: the title, the link to the other language, the line itself
_HARNESS = ("sybil", "pip")


def needed_by(text: str) -> list[str]:
    """Returns the requirements that the top of a page names."""
    found = _NEEDS.search("\n".join(text.splitlines()[:_TOP]))
    return [f"{DISTRIBUTION}{found[1]}", *found[2].split()] if found else [_README]


def make_environment(folder: Path, requirements: Iterable[str]) -> Path:
    """Returns the Python of a new environment with these requirements and what runs a page."""
    venv.EnvBuilder(symlinks=True).create(folder)
    python = folder / "bin" / "python"
    allowed = distributions_of([*requirements, *_HARNESS])
    files, other_files = set(), []
    for name, each in _installed().items():
        if name in allowed:
            files.update(_files(each))
        else:
            other_files.append({*_files(each)})
    # crcmod-plus overwrites files of crcmod, which do not work without its own.
    files.update(*(others for others in other_files if not files.isdisjoint(others)))
    foreign = {parent for others in other_files for file in others - files for parent in file.parents}
    for file in files:
        if file.parent == Path("bin"):
            _copy_script(Path(sys.prefix, file), folder / file, python)
        else:
            _link(file, folder, foreign)
    return python


def distributions_of(requirements: Iterable[str]) -> set[str]:
    """Returns the installed distributions that pip installs for these requirements."""
    waiting, names, visited = [Requirement(each) for each in requirements], set(), set()
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            key = (_normal(requirement.name), extra)
            if key in visited:
                continue
            visited.add(key)
            if key[0] in _installed():
                names.add(key[0])
                each = map(Requirement, _installed()[key[0]].requires or ())
                waiting += [one for one in each if one.marker is None or one.marker.evaluate({"extra": extra})]
    return names


@cache
def _installed() -> dict[str, Distribution]:
    return {_normal(each.name): each for each in distributions()}


def _files(installed: Distribution) -> Iterator[Path]:
    """Yields the files of a distribution, relative to the environment."""
    for file in installed.files or ():
        path = Path(os.path.normpath(str(installed.locate_file(file))))
        if path.is_relative_to(sys.prefix):
            yield path.relative_to(sys.prefix)


def _link(file: Path, folder: Path, foreign: set[Path]) -> None:
    """Links a file, or the highest folder above it that has files of allowed distributions only."""
    for path in (*reversed(file.parents[:-1]), file):
        target = folder / path
        if target.is_symlink():
            return
        if path in foreign and not target.exists():
            target.mkdir()
        elif not target.exists():
            target.symlink_to(Path(sys.prefix, path))
            return


def _copy_script(source: Path, target: Path, python: Path) -> None:
    if not source.is_file() or target.exists():
        return
    content = source.read_bytes()
    if content.startswith(b"#!"):
        # As pip writes it for paths with spaces or too long for the kernel: for Python it is a string.
        start = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
        content = start.encode() + content.partition(b"\n")[2]
    target.write_bytes(content)
    target.chmod(0o755)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
