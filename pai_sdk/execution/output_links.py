"""Links in the outputs of a job, which name their targets as the job sees them. Standard library only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["mend_links"]


def mend_links(folder: Path, seen_as: str) -> None:
    """Let links to a place in a folder as a job saw it (`latest -> /ml/output/…`) lead there from here too.

    Args:
        folder: where the files are; what cannot be mended in it stays as it is.
        seen_as: what the job calls it.
    """
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            with suppress(OSError):
                target = path.readlink() if path.is_symlink() else None
                if target is not None and target.is_relative_to(seen_as):
                    path.unlink()
                    path.symlink_to(os.path.relpath(folder / target.relative_to(seen_as), parent))
