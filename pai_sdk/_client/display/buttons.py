"""The buttons Stop and Log below the card of a job, if a press reaches the kernel while a cell runs."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import Any

from pai_sdk._client.display.base import CellOutput
from pai_sdk.errors import PaiError

# JupyterLab opens the subshell of new widgets in this time, and sends messages to the subshell only afterwards.
_DISPLAY_AFTER_S = 1.0
_RETRY_AFTER_S = 4.0
_MAX_TRIES = 3


class JobButtons:
    """The buttons of one card. They are hidden until the kernel has received a message of the page.

        none -> created -> displayed, hidden -> visible: the page's count has arrived
          ^___________________|  no count arrived; three times at most

    `_lock` guards the state: the messages of the page arrive in another thread than that of `offer`.
    """

    def __init__(self, stop: Callable[[], None], on_log: Callable[[bool], None]) -> None:
        self.on_log = on_log  # called with whether the log is expanded
        self._stop_job = stop
        self._lock = threading.RLock()
        # Whether the kernel receives messages during a cell depends on the kernel, on the frontend and on its
        # settings, so it is tried: the page counts the views of a widget (`_view_count`) and sends the count.
        self._tries = _MAX_TRIES if importlib.util.find_spec("ipywidgets") else 0
        self._is_visible = self._has_ended = False
        self._box: Any = None  # ipywidgets has no types
        self._output = CellOutput()
        self._is_displayed = False
        self._due_at = float("-inf")

    @property
    def box(self) -> Any:
        """Returns the widget with the buttons; None if it does not exist."""
        return self._box

    def offer(self, now: float) -> None:
        """Performs the next transition of the states of the class; called from time to time."""
        with self._lock:
            if self._is_visible or self._has_ended or now < self._due_at:
                return
            if self._box is None and self._tries:
                self._tries -= 1
                self._create()
                self._due_at = now + _DISPLAY_AFTER_S
            elif self._box is not None and not self._is_displayed:
                self._output.show(self._box)
                self._is_displayed = True
                self._due_at = now + _RETRY_AFTER_S
            elif self._box is not None and self._tries:
                self._box.close()
                self._box, self._is_displayed = None, False

    def ended(self) -> None:
        """Removes the button Stop; a hidden box is closed."""
        with self._lock:
            self._has_ended = True
            if self._is_visible:
                self._set(self._stop.layout, display="none")
                self._set(self._message, value="")
            elif self._box is not None:
                self._box.close()
                if self._is_displayed:
                    self._output.show_html("")

    def _create(self) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        layout = {"width": "auto", "height": "26px"}
        self._stop = ipywidgets.Button(description="Stop", tooltip="Stop the job", layout=layout)
        self._log = ipywidgets.ToggleButton(description="Log", tooltip="Show more of the log", layout=layout)
        self._message = ipywidgets.Label()
        self._box = ipywidgets.HBox(
            [self._stop, self._log, self._message], layout={"display": "none"}, _view_count=0
        )
        self._stop.on_click(self._on_stop)
        self._log.observe(lambda change: self.on_log(bool(change["new"])), names="value")
        self._box.observe(self._on_view, names="_view_count")
        for widget in (self._stop, self._log, self._box):
            _receive_anywhere(widget)

    def _on_view(self, _: object) -> None:
        with self._lock:
            if not self._has_ended:
                self._is_visible = True
                self._set(self._box.layout, display=None)

    def _on_stop(self, _: object) -> None:
        self._set(self._stop, disabled=True)
        self._set(self._message, value="stopping…")
        # In a thread: other cells can run before the service has responded.
        threading.Thread(target=self._request_stop, name="pai-stop", daemon=True).start()

    def _request_stop(self) -> None:
        try:
            self._stop_job()
        except PaiError as error:
            self._set(self._message, value=str(error))
            self._set(self._stop, disabled=False)

    def _set(self, widget: Any, **values: object) -> None:
        for name, value in values.items():
            setattr(widget, name, value)
        _receive_anywhere(widget)


def _receive_anywhere(widget: Any) -> None:
    """Lets the page choose the kernel thread that receives its messages to a widget."""
    # JupyterLab sends them to a subshell, which is free while a cell runs. ipykernel 7.4 overrides that: it passes
    # a message to the shell that changed the widget last, which for a new widget is the busy main one.
    getattr(widget.comm, "__dict__", {}).pop("_reply_subshell_id", None)
