"""Buttons below the card of a job in a notebook: stop it, and show more of its log."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import Any

from pai_sdk.errors import PaiError

__all__ = ["JobButtons", "job_buttons"]

_FIRST_KERNEL_THAT_HEARS = 7  # of ipykernel: from it on, a busy kernel hears widgets, in a thread of their own


class JobButtons:
    """The buttons of one card.

    Args:
        stop: requests the end of the job.

    Attributes:
        on_log: called with whether many lines of the log are wanted.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self.on_log: Callable[[bool], None] = lambda is_wanted: None
        self._stop_job = stop
        small = ipywidgets.Layout(width="auto", height="26px")
        self._stop: Any = ipywidgets.Button(description="Stop", tooltip="Request the end of the job", layout=small)
        self._log: Any = ipywidgets.ToggleButton(description="Log", tooltip="Show more of the log", layout=small)
        self._said: Any = ipywidgets.Label()
        self._stop.on_click(self._on_stop)
        self._log.observe(lambda change: self.on_log(bool(change["new"])), names="value")
        self.box: Any = ipywidgets.HBox([self._stop, self._log, self._said])

    def ended(self) -> None:
        """The job has ended: there is nothing to stop."""
        self._stop.layout.display = "none"
        self._said.value = ""

    def _on_stop(self, _: object) -> None:
        self._stop.disabled = True
        self._said.value = "stopping…"
        # In a thread: the kernel goes on with its cells while the service answers.
        threading.Thread(target=self._request_stop, name="pai-stop", daemon=True).start()

    def _request_stop(self) -> None:
        try:
            self._stop_job()
        except PaiError as error:
            self._said.value = str(error)
            self._stop.disabled = False


def job_buttons(stop: Callable[[], None], *, is_waited_for: bool) -> JobButtons | None:
    """Show buttons; None where ipywidgets is missing, or where the kernel would not hear them.

    Args:
        stop: requests the end of the job.
        is_waited_for: the kernel is busy until the job ends.
    """
    if importlib.util.find_spec("ipywidgets") is None:
        return None
    from importlib.metadata import version

    from IPython.display import display

    if is_waited_for and int(version("ipykernel").partition(".")[0]) < _FIRST_KERNEL_THAT_HEARS:
        return None
    buttons = JobButtons(stop)
    display(buttons.box)  # type: ignore[no-untyped-call]
    return buttons
