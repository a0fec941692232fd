"""Detects a notebook."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """Returns True if this code runs in a Jupyter kernel; imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    # Not checked by the class of the shell: other front ends have their own.
    return getattr(shell, "kernel", None) is not None
