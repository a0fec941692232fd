"""Packages that a test makes itself, so that pip needs no network."""

from __future__ import annotations

import zipfile
from pathlib import Path

__all__ = ["write_wheel"]


def write_wheel(folder: Path, name: str, version: str, source: str, *, entry_points: str = "") -> None:
    """Write the wheel of a package that is one module.

    Args:
        folder: where to; what `--find-links` of pip is given.
        name: of the package, and of its module.
        version: as pip is to see it.
        source: the module.
        entry_points: the file of that name.
    """
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", source)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        if entry_points:
            wheel.writestr(f"{about}/entry_points.txt", entry_points)
        wheel.writestr(f"{about}/RECORD", "")
