"""Every example of README.md, CONTRIBUTING.md and docs/ works, in an empty HOME and an empty folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# tests/docker and tests/cluster run these.
NEED_ENGINES = {ROOT / "docs" / name for name in ("local.md", "ray.md", "slurm.md", "team.md")}
FIRST = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "index.md"]
# The Chinese pages have the blocks of the English ones: test_chinese.py compares them.
CHINESE = {*(ROOT / "docs" / "zh").iterdir()}
OTHERS = sorted({*(ROOT / "docs").rglob("*.md")} - {*NEED_ENGINES, *FIRST, *CHINESE})
# Nearly every page starts a service and runs jobs, so `make test` runs only what a reader meets first.
PAGES = [*FIRST, *(pytest.param(page, marks=pytest.mark.slow) for page in OTHERS)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_work(page: Path, run_page: Callable[[Path], tuple[int, str]]) -> None:
    status, said = run_page(page)
    assert status == 0, said


def test_the_chinese_readme_has_the_same_examples() -> None:
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")]
    english, chinese = (re.findall(r"^```.*?^```", page, re.DOTALL | re.MULTILINE) for page in pages)
    assert chinese == english


def test_the_command_for_one_test_selects_one() -> None:
    found = re.search(
        r"`\.venv/bin/python (-m pytest -q tests/.*)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    )
    assert found is not None
    command = [sys.executable, *shlex.split(found[1]), "--collect-only"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
