"""Detects modules that the user has written."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_INSTALLED = {"site-packages", "dist-packages"}


def is_of_user(name: str) -> bool:
    """Returns True if a module belongs neither to Python, nor to an installed package, nor to this one."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return False
    # A module that is not loaded was typed in: its functions were created by `exec`.
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        # Code of a prompt or a notebook has no file.
        return module is None or name == "__main__"
    path = Path(file).resolve()
    library_dirs = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib")}
    return not _INSTALLED.intersection(path.parts) and not any(map(path.is_relative_to, library_dirs))
