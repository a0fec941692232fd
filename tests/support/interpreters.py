"""The Pythons of this machine, and whether each can import modules that must need the standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
IN_JOBS = ("3.8", "3.9", *SUPPORTED)  # the Pythons of images that jobs run in

# Each module first, as if no other had been imported before it.
_IMPORT_EACH = """
import importlib, sys
sys.path.append(sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
    for loaded in [module for module in sys.modules if module.partition(".")[0] == "pai_sdk"]:
        del sys.modules[loaded]
    print(name)
"""


def _interpreters() -> dict[str, str]:
    """The interpreters of this machine, by version: this one, those on PATH and those of pyenv."""
    places = sorted(Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser().glob("versions/3.*/bin"))
    path = os.pathsep.join([*map(str, places), os.environ.get("PATH", os.defpath)])
    programs = (shutil.which(f"python{version}", path=path) for version in IN_JOBS)
    found = {version: _behind(program) for version, program in zip(IN_JOBS, programs, strict=True) if program}
    this = "{}.{}".format(*sys.version_info)
    return {version: program for version, program in {**found, this: sys.executable}.items() if program}


def _behind(program: str) -> str:
    """The interpreter that a program runs; empty if it fails, as pyenv does for versions that are not in use."""
    command = [program, "-S", "-I", "-c", "import sys; print(sys.executable)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.stdout.strip()


INTERPRETERS = _interpreters()  # before the tests get a HOME of their own


def imports_with_the_standard_library_only(version: str, modules: Sequence[str]) -> None:
    """Import each module alone with that Python, without site-packages; skips where there is no such Python."""
    if version not in INTERPRETERS:
        pytest.skip(f"there is no Python {version} on this machine")
    program = [INTERPRETERS[version], "-S", "-I", "-c", _IMPORT_EACH, str(ROOT), *modules]
    done = subprocess.run(
        program, env={}, cwd="/", capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.stdout.split(), done.stderr) == (list(modules), "")
