"""Chooses the display of a job: in a notebook, a terminal or a file."""

from __future__ import annotations

import sys

from pai_sdk._client.display.base import Display
from pai_sdk._client.display.jupyter import CardJob, JupyterDisplay
from pai_sdk._client.display.terminal import TerminalDisplay
from pai_sdk._core.kernel import in_notebook


def notebook_cell() -> int | None:
    """Returns the number of the running cell; None outside of a notebook."""
    return int(sys.modules["IPython"].get_ipython().execution_count) if in_notebook() else None


def choose_display(*, job: CardJob | None = None, instead_of: Display | None = None) -> Display:
    """Returns a card in a notebook, lines in a terminal, a script or a pipe."""
    if in_notebook():
        previous = instead_of if isinstance(instead_of, JupyterDisplay) else None
        return JupyterDisplay(job=job, instead_of=previous)
    return TerminalDisplay(job=job)
