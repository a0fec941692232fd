r"""Prints log lines to a text stream as the job wrote them, and updates progress bars in place.

A line that ends with `\r` is a state of a progress bar, and the next line of that instance replaces it. In a
terminal there is one such live row for each instance, below all other lines, and one for the elapsed time of a
silent job; in a file a state is written every ten seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from pai_sdk._client.display.base import short_instance
from pai_sdk._core.kernel import in_notebook
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.pai.record import JobRecord, LogLine

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

_COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "bright_red")
_STATE_INTERVAL_S = 10.0


class ForgivingStream:
    """A text stream that writes `?` for characters that its encoding does not have, instead of failing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes a string."""
        try:
            return self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            return self._stream.write(text.encode(encoding, "replace").decode(encoding))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class LiveRows:
    """A console; in a terminal it has rows below all its lines, which are redrawn in place."""

    def __init__(self, stream: TextIO | None = None, *, redirect_stdout: bool = False) -> None:
        self._stream = stream
        self._redirect_stdout = redirect_stdout  # where other code prints to this terminal
        self._lazy_console: Console | None = None  # by default on stdout, as it is at the time of the first line
        self._live: Live | None = None

    @property
    def console(self) -> Console:
        """Returns the console; it is created at the first use."""
        if self._lazy_console is None:
            from rich.console import Console

            # The output or the name of a job must not cause an error of the wait.
            file = cast("TextIO", ForgivingStream(self._stream or sys.stdout))
            self._lazy_console = Console(file=file, highlight=False, soft_wrap=True)
        return self._lazy_console

    @property
    def has_rows(self) -> bool:
        """Returns whether rows are displayed."""
        return self._live is not None

    def print(self, line: Text) -> None:
        """Writes a line above the rows."""
        self.console.print(line)

    def print_text(self, text: str, style: str) -> None:
        """Writes a line above the rows, without its control sequences."""
        stream = self._stream or sys.stdout
        if self._lazy_console is None and _is_plain(stream):
            # Without Rich, which takes as long as all requests of a submission.
            file = ForgivingStream(stream)
            file.write(visible_text(text).expandtabs() + "\n")
            file.flush()
            return
        from rich.text import Text

        self.print(Text(visible_text(text), style=style))

    def draw(self, rows: Sequence[Text]) -> None:
        """Replaces the rows; an empty sequence removes them."""
        if not self.console.is_terminal:
            return
        from rich.console import Group
        from rich.live import Live

        for row in rows:
            row.truncate(self.console.width - 1, overflow="ellipsis")  # a wrapped row cannot be redrawn in place
        if rows and self._live is None:
            self._live = Live(
                console=self.console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=self._redirect_stdout and _is_terminal(sys.stdout),
                # A warning is written above the rows, not behind the last of them.
                redirect_stderr=_is_terminal(sys.stderr),
            )
            self._live.start()
            self.console.show_cursor(True)  # an interrupt here must not leave it hidden
        if self._live is not None and rows:
            self._live.update(Group(*rows), refresh=True)
        elif self._live is not None:
            self._live.stop()  # removes its rows
            self._live = None


def _is_plain(stream: TextIO | None) -> bool:
    """Returns whether Rich would write no styles to a stream."""
    is_forced = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
    return stream is not None and not is_forced and not _is_terminal(stream) and not in_notebook()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # a process without a console has no streams


class LogWriter:
    """Writes log lines, and notices between them."""

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rows = LiveRows(stream)
        self._tags: dict[str, Text] = {}
        self._states: dict[str, str] = {}  # instance to the state of its progress bar
        self._printed_at: dict[str, float] = {}
        self._status_text = ""  # the row below all of them until the next line

    @property
    def is_terminal(self) -> bool:
        """Returns whether rows can be redrawn in place."""
        return self._console.is_terminal

    def set_instances(self, record: JobRecord) -> None:
        """Sets the instances of the job; if there are several, each line is marked with its instance."""
        from rich.text import Text

        if len(record.instance_names) > len(self._tags):
            for number, name in enumerate(record.instance_names):
                tag = Text(short_instance(record.training_job_id, name), style=_COLOURS[number % len(_COLOURS)])
                self._tags[name] = tag.append(" | ", style="dim")

    @property
    def instances(self) -> int:
        """Returns the number of known instances."""
        return len(self._tags)

    def line(self, line: LogLine) -> None:
        """Writes a line, or replaces the state of a progress bar."""
        self.clear_status()
        text = visible_text(line.text, colours=self._console.is_terminal and not self._console.no_color)
        if line.written_at is not None:
            text = f"{line.written_at}  {text}"
        if line.text.endswith("\r"):
            self._states[line.instance] = text
            self._update_state(line.instance)
            return
        state = self._states.pop(line.instance, None)
        if state is not None:
            self._printed_at.pop(line.instance, None)
            self._draw()
            text = text or state  # a line end alone: keep the state
        self._print(line.instance, text)

    def print_text(self, text: str, style: str) -> None:
        """Writes a notice."""
        self.clear_status()
        self._rows.print_text(text, style)

    def show_status(self, text: str) -> None:
        """Displays a row below all lines until the next line, in a terminal."""
        self._status_text = text
        self._draw()

    def clear_status(self) -> None:
        """Removes the status row."""
        if self._status_text:
            self._status_text = ""
            self._draw()

    def settle(self) -> None:
        """Writes the last states as lines: they will not be replaced any more."""
        states, self._states = self._states, {}
        self._status_text = ""
        self._draw()
        for instance, text in states.items():
            self._print(instance, text)
        self._printed_at.clear()

    @property
    def _console(self) -> Console:
        return self._rows.console

    def _update_state(self, instance: str) -> None:
        if self._console.is_terminal:
            self._draw()
            return
        now = self._clock()
        if now - self._printed_at.get(instance, -_STATE_INTERVAL_S) >= _STATE_INTERVAL_S:
            self._printed_at[instance] = now
            self._print(instance, self._states[instance])

    def _print(self, instance: str, text: str) -> None:
        if not self._rows.has_rows and len(self._tags) < 2:
            # Ten times as fast as `Console.print`; of the control sequences only colours remain.
            self._console.file.write(text + ("\x1b[0m\n" if "\x1b" in text else "\n"))
            self._console.file.flush()
        else:
            self._console.print(self._tagged(instance, text))

    def _tagged(self, instance: str, text: str) -> Text:
        from rich.text import Text

        content = Text.from_ansi(text)
        return self._tags[instance].copy().append(content) if len(self._tags) > 1 else content

    def _draw(self) -> None:
        """Draws the live rows, in a terminal."""
        if not self._console.is_terminal:
            return
        from rich.text import Text

        rows = [self._tagged(instance, text) for instance, text in self._states.items()]
        self._rows.draw([*rows, Text(self._status_text, style="dim")] if self._status_text else rows)
