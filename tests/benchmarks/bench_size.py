"""Size: what the package and all it needs add to an empty environment, without bytecode, beside alipai."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import peers
from tests.benchmarks.harness import Row

REPETITIONS = 1

ROOT = Path(__file__).parents[2]
OURS = Row("pai_sdk and what it needs", unit="MB", at_most=45)
THEIRS = Row("alipai and what it needs", unit="MB")
ROWS = (OURS, THEIRS)


def prepare(cache: Path) -> None:
    peers.ALIPAI.install(cache)


def measure(cache: Path) -> dict[str, float | str]:
    theirs = peers.ALIPAI.python(cache)
    with tempfile.TemporaryDirectory() as name:
        empty = Path(name, "empty")
        subprocess.run([sys.executable, "-m", "venv", str(empty)], check=True)
        before = _megabytes(empty)
        pip = [str(empty / "bin" / "python"), "-m", "pip", "install", "-qq", "--no-compile"]
        subprocess.run([*pip, "--disable-pip-version-check", str(ROOT)], check=True, timeout=600)
        ours = _megabytes(empty) - before
        if isinstance(theirs, str):
            return {OURS.name: ours, THEIRS.name: theirs}
        return {OURS.name: ours, THEIRS.name: _megabytes(theirs.parents[1]) - before}


def _megabytes(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if "__pycache__" not in path.parts) / 1e6
