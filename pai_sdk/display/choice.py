"""Where we are, and so how a job is shown."""

from __future__ import annotations

import sys

from pai_sdk.base.kernel import in_notebook
from pai_sdk.display.base import Display


def notebook_cell() -> int | None:
    """The number of the cell that runs; None outside of a notebook."""
    return int(sys.modules["IPython"].get_ipython().execution_count) if in_notebook() else None


def choose_display(*, instead_of: Display | None = None) -> Display:
    """A card in a notebook, lines in a terminal, a script or a pipe.

    Args:
        instead_of: what has shown the same job in this cell; a new card takes the place of that one.
    """
    if in_notebook():
        from pai_sdk.display.jupyter import JupyterDisplay

        return JupyterDisplay(instead_of=instead_of if isinstance(instead_of, JupyterDisplay) else None)
    from pai_sdk.display.terminal import TerminalDisplay

    return TerminalDisplay()
