"""The language of the package: names from the glossary, docstrings that stand alone."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Definition sites with an everyday word in place of a term. Lower it when you rename; never raise it.
MAX_GLOSSARY_SITES = 4460
MAX_BACK_REFERENCES = 89


@pytest.fixture(scope="module")
def measure() -> Any:
    """The script that measures the package."""
    spec = spec_from_file_location("measure", ROOT / ".ci" / "measure.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["measure"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_names_come_from_the_glossary(measure: Any) -> None:
    sites = measure.glossary_sites(measure.modules(ROOT / "pai_sdk"))
    assert len(sites) <= MAX_GLOSSARY_SITES, [f"{site.path}:{site.line} {site.name}" for site in sites]


def test_docstrings_do_not_refer_back(measure: Any) -> None:
    references = measure.back_references(measure.modules(ROOT / "pai_sdk"))
    assert len(references) <= MAX_BACK_REFERENCES, references


def test_the_measure_sees_each_kind_of_name(measure: Any, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""The same."""\n'
        "TAKEN = 1\n"
        "class Held:\n"
        "    kept: int\n"
        "    def told(self, what):\n"
        "        found = self.seen = what\n"
        "    def tell_row(self, rows): ...\n"
    )
    found = [(site.kind, site.name) for site in measure.glossary_sites([module])]
    assert found == [
        ("constant", "TAKEN"),
        ("class", "Held"),
        ("field", "kept"),
        ("method", "told"),
        ("parameter", "what"),
        ("local", "found"),
        ("attribute", "seen"),
        ("method", "tell_row"),
    ]
    assert [text for _, text in measure.documented(module)] == ["The same."]


def test_imports_are_measured_in_places(measure: Any) -> None:
    edges = {"cli": {"api", "errors"}, "api": {"base"}, "base": {"errors"}}
    assert measure.depth_and_circles(edges) == (4, [])
    assert measure.depth_and_circles({**edges, "base": {"api"}}) == (1, ["api", "base", "cli"])
