"""`make docs` fails on what a reader of the site would trip over."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

from pai_sdk._core.extras import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]
_OTHERS = ("in the log", "in the shell", "pip:")  # what other software prints
BROKEN = "[a page](no-such-page.md) and [a heading](index.md#no-such-heading)\n"


@pytest.mark.slow
def test_the_site_is_not_built_with_a_broken_link(tmp_path: Path) -> None:
    for name in ("docs", "pai_sdk", ".ci"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.glob("*.*"):
        if file.is_file():
            shutil.copy(file, tmp_path)
    with (tmp_path / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{BROKEN}")
    found = re.search(r"/mkdocs (build .*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert found is not None
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", *found[1].split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    warnings = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("WARNING")]
    assert done.returncode != 0
    assert len(warnings) == 2, done.stderr
    assert "no-such-page.md" in "".join(warnings)
    assert "no-such-heading" in "".join(warnings)


def test_the_navigation_has_five_sections_of_at_most_eight_entries() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    sections = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    assert len(sections) == 5

    def check(entries: list[dict[str, object]]) -> None:
        assert len(entries) <= 8
        for entry in entries:
            for below in entry.values():
                if isinstance(below, list):
                    check(below)

    check(sections)


@pytest.mark.parametrize(
    "words",
    [
        "spot instances",
        "vpc",
        "gpus",
        "private images",
        "stop a job",
        "out of memory",
        "conda",
        "hyperparameter search",
        "notify",
    ],
)
def test_what_people_search_for_is_a_page(words: str) -> None:
    pages = (ROOT / "docs").glob("*.md")
    assert [page for page in pages if page.read_text(encoding="utf-8").lower().startswith(f"# {words}")]


def first_cells(page: str) -> list[str]:
    """Returns the first cell of each row of the tables of a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]


def test_the_table_of_extras_has_each_of_them() -> None:
    listed = {name for cell in first_cells("extras.md") for name in re.findall("`([a-z0-9]+)`", cell)}
    assert listed == set(distribution(DISTRIBUTION).metadata.get_all("Provides-Extra") or ())


def test_the_messages_of_the_page_on_troubleshooting_are_those_of_the_package() -> None:
    cells = [cell for cell in first_cells("troubleshooting.md") if not any(other in cell for other in _OTHERS)]
    quoted = [text for cell in cells for text in re.findall("`([^`]+)`", cell)]
    assert quoted
    messages = (ROOT / "tests" / "golden" / "messages.txt").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "pai_sdk").rglob("*.py")]
    assert [text for text in quoted if not any(text in each for each in (messages, *sources))] == []
