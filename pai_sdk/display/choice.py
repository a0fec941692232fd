"""Chooses the display of a job: in a notebook, a terminal or a file."""

from __future__ import annotations

import sys

from pai_sdk.base.kernel import in_notebook
from pai_sdk.display.base import Display
from pai_sdk.display.jupyter import JupyterDisplay, CardJob
from pai_sdk.display.terminal import TerminalDisplay


def notebook_cell() -> int | None:
    """The number of the cell that runs; None outside of a notebook."""
    return int(sys.modules["IPython"].get_ipython().execution_count) if in_notebook() else None


def choose_display(*, job: CardJob | None = None, instead_of: Display | None = None) -> Display:
    """A card in a notebook, lines in a terminal, a script or a pipe.

    Args:
        job: gives the points of its metrics, and is stopped by the card's button.
        instead_of: what has shown the same job in this cell; a new card takes the place of that one.
    """
    if in_notebook():
        previous = instead_of if isinstance(instead_of, JupyterDisplay) else None
        return JupyterDisplay(job=job, instead_of=previous)
    return TerminalDisplay(job=job)
