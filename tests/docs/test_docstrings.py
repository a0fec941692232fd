"""Every example in a docstring of the package works."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "pai_sdk"


def module_names() -> list[str]:
    """All modules of the package, by their files: importing them is part of the test."""
    # A folder without __init__.py holds the code of jobs (cli/demo_code), which imports what jobs install.
    modules = (path for path in PACKAGE.rglob("*.py") if path.with_name("__init__.py").exists())
    paths = (path.relative_to(PACKAGE.parent).with_suffix("") for path in modules)
    names = (".".join(path.parts) for path in paths if path.name != "__main__")
    return sorted(name.removesuffix(".__init__") for name in names)


@pytest.mark.parametrize("name", module_names())
@pytest.mark.usefixtures("fresh_place")
def test_the_examples_of_a_module_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(name)
    monkeypatch.setattr("pai_sdk._client.session.default._default", None)  # and put back at the end
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0, f"the report above shows {failed} failed examples of {name}"
