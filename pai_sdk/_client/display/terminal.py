"""Displays a job in a terminal: a few marked notices, and the unchanged lines of its log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TextIO

from pai_sdk._client.display.base import duration_text, elapsed_s, finding_text
from pai_sdk._client.display.commands import attach_lines, next_commands, page_url
from pai_sdk._client.display.curves import MetricCurves, PointReader, Reporting, metrics_text
from pai_sdk._client.display.lines import LogWriter
from pai_sdk._wire.pai.record import JobRecord, LogLine
from pai_sdk._wire.pai.status import JobStatus

_QUIET_S = 3.0


class TerminalDisplay:
    """Writes to a text stream; with colours only if the stream is a terminal and NO_COLOR is not set."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        job: Reporting | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Guards all fields below: `beat` runs in another thread. Reentrant, because `changed` calls `_print`.
        self._lock = threading.RLock()
        self._clock = clock
        self._writer = LogWriter(stream)
        self._status = ""
        self._finding = ""
        self._last_record: JobRecord | None = None
        self._points = PointReader(job, clock)
        self._curves = MetricCurves()
        self._has_lines = False  # since the last status was printed
        self._printed_at = clock()  # after some silence a row in a terminal displays the elapsed time

    def submitted(self, record: JobRecord) -> None:
        """Prints the job's id, and its page or the command to follow it, in one line."""
        name = f" ({record.training_job_name})" if record.training_job_name else ""
        where = page_url(record) or next_commands(record)[0]
        self._print("●", f"{record.training_job_id}{name} submitted: {where}", "bold")

    def changed(self, record: JobRecord) -> None:
        """Prints a new status once, and what a rule of the service detects."""
        with self._lock:
            self._last_record = record
            self._writer.set_instances(record)
            finding, previous_finding = finding_text(record), self._finding
            self._finding = finding
            if finding and finding != previous_finding:
                self._print("!", finding, "yellow")
            if record.status == self._status or record.status.is_terminal:
                return
            previous, self._status = self._status, record.status
            if previous is not None and record.status == JobStatus.SUBMITTED and record.reason_message:
                self._print("!", f"{record.reason_message} The job waits for another attempt.", "yellow")
            if record.status == JobStatus.RUNNING and self._has_lines:
                return  # its log lines have already proved it
            self._has_lines = False
            count = f", {self._writer.instances} instances" if self._writer.instances > 1 else ""
            self._print("●", f"{record.status}{count}", "dim")

    def line(self, line: LogLine) -> None:
        """Prints a line as the job wrote it, with its instance if there are several."""
        with self._lock:
            self._printed_at, self._has_lines = self._clock(), True
            self._writer.line(line)

    def beat(self) -> None:
        """Displays the elapsed time and the last metrics, after a few silent seconds."""
        with self._lock:
            record = self._quiet_record()
        if record is None:
            return
        # Without the lock, because it makes a request.
        points = self._points.read_new(record) if self._writer.is_terminal else ()
        with self._lock:
            self._curves.add(points)
            # Again: a line may have arrived during the request.
            if (record := self._quiet_record()) is not None:
                metrics = metrics_text(record.latest_metrics, self._curves)
                self._writer.show_status(
                    f"● {record.status} {duration_text(elapsed_s(record) or 0)}  {metrics}".rstrip()
                )

    def _quiet_record(self) -> JobRecord | None:
        """Returns the last snapshot of a running job that has been silent for a few seconds; otherwise None."""
        record = self._last_record
        if record is None or record.status.is_terminal or self._clock() - self._printed_at < _QUIET_S:
            return None
        return record if elapsed_s(record) is not None else None

    def stop_beat(self) -> None:
        """Removes the row with the elapsed time."""
        with self._lock:
            self._writer.clear_status()

    def notice(self, text: str) -> None:
        """Prints a notice."""
        self._print("!", text, "yellow")

    def detached(self, record: JobRecord) -> None:
        """Prints that the job is still running, the commands to attach to it, and its page."""
        self._settle()
        self._print("●", f"{record.training_job_id} is still running. To follow or stop it:", "yellow")
        for line in attach_lines(record):
            self._print(" ", line, "yellow")

    def ended(self, record: JobRecord) -> None:
        """Prints the final status, the duration, the last metrics and the outputs."""
        self._settle()
        curves = self._points.read_all(record) or self._curves
        seconds = elapsed_s(record)
        took = f" after {duration_text(seconds)}" if seconds is not None else ""
        mark, style = ("✔", "green") if record.status.is_success else ("✘", "red")
        if record.status.is_stopped:
            mark, style = "■", "yellow"
        self._print(mark, f"{record.training_job_id} {record.status}{took}", f"bold {style}")
        if metrics := metrics_text(record.latest_metrics, curves):
            self._print(" ", metrics, "dim")
        if record.status.is_success:
            for channel, uri in record.outputs.items():
                self._print(" ", f"{channel}: {uri}", "dim")

    def _settle(self) -> None:
        with self._lock:
            self._writer.settle()

    def _print(self, mark: str, text: str, style: str) -> None:
        with self._lock:
            self._printed_at = self._clock()
            self._writer.print_text(f"{mark} {text}", style)
