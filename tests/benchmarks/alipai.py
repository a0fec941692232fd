"""alipai, the SDK this one is measured beside, in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# alipai imports pkg_resources, which newer releases of setuptools no longer have.
PACKAGES = ("alipai==0.4.13", "setuptools<81")


def install(cache: Path) -> None:
    """Make the environment, unless an earlier run has; where that fails, `python` tells why."""
    folder = cache / "alipai"
    if (folder / "ready").exists() and (folder / "bin" / "python").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *PACKAGES], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 0:
        (folder / "ready").touch()
    else:
        (folder / "fault").write_text((done.stderr.strip().splitlines() or ["pip failed"])[-1], encoding="utf-8")


def python(cache: Path) -> Path | str:
    """Its interpreter, or the reason why there is none."""
    folder = cache / "alipai"
    if (folder / "ready").exists():
        return folder / "bin" / "python"
    return f"alipai could not be installed: {(folder / 'fault').read_text(encoding='utf-8')}"
