"""What stays on a host with a job imports the standard library only, on every Python that we support."""

from __future__ import annotations

import pytest

from tests.support.interpreters import ROOT, SUPPORTED, imports_with_the_standard_library_only

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "pai_sdk" / "_host" / "agent").rglob("*.py")
)


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_agent_needs_the_standard_library_only(version: str) -> None:
    imports_with_the_standard_library_only(version, MODULES)


def test_the_agents_modules_are_found() -> None:
    assert "pai_sdk._host.agent.supervisor" in MODULES
