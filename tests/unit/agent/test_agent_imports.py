"""What stays on a host with a job imports the standard library only, on every Python that we support."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "pai_sdk" / "agent").glob("*.py")
)
VERSIONS = ("3.10", "3.11", "3.12", "3.13")


def interpreters() -> dict[str, str]:
    """The interpreters of this machine, by version: this one, those on PATH and those of pyenv."""
    places = sorted(Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser().glob("versions/3.*/bin"))
    # Before PATH, whose first folder may have pyenv's stand-ins for interpreters that are not in use.
    path = os.pathsep.join([*map(str, places), os.environ.get("PATH", os.defpath)])
    found = {version: shutil.which(f"python{version}", path=path) for version in VERSIONS}
    this = "{}.{}".format(*sys.version_info)
    return {version: program for version, program in {**found, this: sys.executable}.items() if program}


INTERPRETERS = interpreters()  # before the tests get a HOME of their own


# Each module first, as if no other had been imported before it.
IMPORT_EACH = """
import importlib, sys
sys.path.append(sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
    for loaded in [module for module in sys.modules if module.partition(".")[0] == "pai_sdk"]:
        del sys.modules[loaded]
    print(name)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_agent_needs_the_standard_library_only(version: str) -> None:
    if version not in INTERPRETERS:
        pytest.skip(f"there is no Python {version} on this machine")
    program = [INTERPRETERS[version], "-S", "-I", "-c", IMPORT_EACH, str(ROOT), *MODULES]
    done = subprocess.run(program, env={}, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout.split(), done.stderr) == (MODULES, "")


def test_the_agents_modules_are_found() -> None:
    assert "pai_sdk.agent.supervisor" in MODULES
