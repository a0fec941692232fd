"""The pages of docs/reference/ have every public name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pai_sdk
from tests.docs.test_public import imported, pages

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
NAMES = [name for name in pai_sdk.__all__ if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_in_the_reference(name: str) -> None:
    module = getattr(pai_sdk, name).__module__
    entries = {f"::: pai_sdk.{name}", f"::: {module}"} if module == "pai_sdk.errors" else {f"::: pai_sdk.{name}"}
    pages = [page for page in REFERENCE.glob("*.md") if not entries.isdisjoint(page.read_text().splitlines())]
    assert pages, f"add one of the lines {sorted(entries)} to a page of docs/reference"


def entries() -> list[str]:
    text = "".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    return re.findall(r"^::: (\S+)$", text, re.MULTILINE)


def test_the_reference_shows_public_paths_only() -> None:
    assert [entry for entry in entries() if "._" in entry] == []


# Modules as names, and what is described with its module or by its page.
ELSEWHERE = {"pai_sdk.errors", "pai_sdk.common.oss_utils"}
NO_ENTRY = {"functions", "MEDIA_TYPE"}


def test_what_the_documentation_imports_is_in_the_reference() -> None:
    described = {entry.rpartition(".")[2] for entry in entries()}
    used = {name for _, text in pages() for module, name in imported(text) if module not in ELSEWHERE}
    assert used - described - NO_ENTRY == set()
