"""Programs of others that this one is measured beside, each in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """A package of others.

    Attributes:
        name: of its environment.
        packages: what pip installs there.
    """

    name: str
    packages: tuple[str, ...]

    def install(self, cache: Path) -> None:
        """Make the environment, unless an earlier run has; where that fails, `python` tells why."""
        folder = cache / self.name
        if (folder / "ready").exists() and (folder / "bin" / "python").exists():
            return
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *self.packages], capture_output=True, text=True, timeout=600, check=False)
        if done.returncode == 0:
            (folder / "ready").touch()
        else:
            fault = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
            (folder / "fault").write_text(fault, encoding="utf-8")

    def python(self, cache: Path) -> Path | str:
        """Its interpreter, or the reason why there is none."""
        folder = cache / self.name
        if (folder / "ready").exists():
            return folder / "bin" / "python"
        return f"{self.name} could not be installed: {(folder / 'fault').read_text(encoding='utf-8')}"


# alipai imports pkg_resources, which newer releases of setuptools no longer have.
ALIPAI = Peer("alipai", ("alipai==0.4.13", "setuptools<81"))
# Newer releases of FastAPI have no `min_items`, which this release of Prefect gives.
PREFECT = Peer("prefect", ("prefect==3.8.8", "fastapi==0.140.*"))
METAFLOW = Peer("metaflow", ("metaflow==2.19.*",))
