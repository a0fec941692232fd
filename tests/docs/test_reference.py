"""The pages of docs/reference/ have every public name."""

from __future__ import annotations

from pathlib import Path

import pytest

import pai_sdk

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
NAMES = [name for name in pai_sdk.__all__ if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_in_the_reference(name: str) -> None:
    found = getattr(pai_sdk, name)
    entries = {f"::: {found.__module__}.{found.__qualname__}", f"::: {found.__module__}"}
    pages = [page for page in REFERENCE.glob("*.md") if not entries.isdisjoint(page.read_text().splitlines())]
    assert pages, f"add one of the lines {sorted(entries)} to a page of docs/reference"
