"""The log files of instances, as their supervisor uses them. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import BinaryIO

from pai_sdk._core.files import append_to
from pai_sdk._host.agent.sandbox import Sandbox


class InstanceLogs:
    """The logs of one job's instances, and samples of their sizes."""

    def __init__(self, sandbox: Sandbox, instances: Iterable[str]) -> None:
        self._sandbox = sandbox
        self._sampled_bytes = dict.fromkeys(instances, -1)  # the first sample is recorded, also of an empty log

    def open(self, instance: str) -> BinaryIO:
        """Opens the log for appending."""
        return self._sandbox.log_file(instance).open("ab", buffering=0)

    def write_notice(self, text: str) -> None:
        """Writes a line of pai_sdk into every log."""
        for instance in self._sampled_bytes:
            with self.open(instance) as log:
                log.write(f"[pai-sdk] {text}\n".encode())

    def size_bytes(self, instance: str) -> int:
        """Returns the size of the log; 0 if there is none."""
        try:
            return self._sandbox.log_file(instance).stat().st_size
        except FileNotFoundError:
            return 0

    def text_from(self, instance: str, offset: int, *, max_bytes: int = 64 * 1024) -> str:
        """Returns the text after an offset, at most the last `max_bytes` of it."""
        with self._sandbox.log_file(instance).open("rb") as log:
            log.seek(max(offset, self.size_bytes(instance) - max_bytes))
            return log.read(max_bytes).decode(errors="replace")

    def sample(self, now: float) -> bool:
        """Records the current size of each log, so that lines can be located by their time.

        Returns:
            Whether a log has grown since the last call.
        """
        has_grown = False
        for instance, sampled_bytes in self._sampled_bytes.items():
            size_bytes = self.size_bytes(instance)
            if size_bytes != sampled_bytes:
                has_grown = True
                # A full disk must not stop the job; the sizes are noted at the next sample.
                with suppress(OSError):
                    append_to(self._sandbox.times_file(instance), f"{now:.3f} {size_bytes}\n".encode("ascii"))
                    self._sampled_bytes[instance] = size_bytes
        return has_grown
