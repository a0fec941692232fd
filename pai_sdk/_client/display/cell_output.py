"""An output of a notebook's cell, which is replaced in place."""

from __future__ import annotations

from typing import Any


class CellOutput:
    """One output of the cell in which it was displayed first."""

    def __init__(self) -> None:
        self._handle: Any = None  # IPython's DisplayHandle, which has no types

    def show(self, content: object) -> None:
        """Displays a value, in place of the previous one."""
        from IPython.display import display

        if self._handle is None:
            self._handle = display(content, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content)

    def show_html(self, html: str) -> None:
        """Displays HTML, in place of the previous content."""
        from IPython.display import HTML

        self.show(HTML(html))  # type: ignore[no-untyped-call]
