"""The last lines of a file, without reading all of it."""

from __future__ import annotations

import os
from pathlib import Path

_MAX_BYTES = 128 << 10


def tail(path: Path) -> list[str]:
    """Returns the lines in the last 128 KiB of a file; raises OSError if it cannot be read."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_BYTES))
        return file.read(_MAX_BYTES).decode(errors="replace").splitlines()
