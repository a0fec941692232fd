"""Fixtures that run the examples of a page and end what they have started."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.environment import make_environment, needed_by
from tests.support.leftovers import end_processes_of

RUNNER = Path(__file__).with_name("page.py")
PAGE_S = 500  # much longer than any page needs


@pytest.fixture
def fresh_place(clean_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder and an empty HOME; processes started in it are ended."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    end_processes_of(clean_home)


@pytest.fixture
def run_page(fresh_place: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], tuple[int, str]]:
    """Runs a page's examples with what the page says to install; returns the exit status and the output."""
    # Into a file and not a pipe: a service that an example leaves behind would hold a pipe open.
    said = tmp_path_factory.mktemp("page") / "log"

    def run(page: Path) -> tuple[int, str]:
        needed = tuple(needed_by(page.read_text(encoding="utf-8")))
        python = _python_for(needed, fresh_place.parent / "environments")
        with said.open("wb") as output:
            status = subprocess.run(
                [python, str(RUNNER), str(page)],
                cwd=fresh_place,
                env={**os.environ, "PATH": os.pathsep.join([str(python.parent), _path_outside()])},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=PAGE_S,
                check=False,
            ).returncode
        return status, said.read_text(encoding="utf-8", errors="replace")

    return run


@functools.cache
def _python_for(needed: tuple[str, ...], folder: Path) -> Path:
    name = re.sub(r"\W+", "-", "-".join(needed))
    return make_environment(folder / name, needed)


def _path_outside() -> str:
    """Returns PATH without the commands of the environment that has everything."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(each for each in folders if Path(each) != Path(sys.executable).parent)
