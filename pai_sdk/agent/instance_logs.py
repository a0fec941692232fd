"""The files that instances write into, as their supervisor sees them. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import BinaryIO

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import append_to

__all__ = ["InstanceLogs"]


class InstanceLogs:
    """The logs of one job's instances, and when each had which size.

    Example:
        >>> from pathlib import Path
        >>> logs = InstanceLogs(Sandbox(Path("/srv/jobs/train1")), ["train1-master-0"])
        >>> logs.size_bytes("train1-master-0")
        0
    """

    def __init__(self, sandbox: Sandbox, instances: Iterable[str]) -> None:
        self._sandbox = sandbox
        self._sampled_bytes = dict.fromkeys(instances, 0)

    def open(self, instance: str) -> BinaryIO:
        """The log, opened for appending."""
        return self._sandbox.log_file(instance).open("ab", buffering=0)

    def note(self, text: str) -> None:
        """Write a line of pai_sdk into every log."""
        for instance in self._sampled_bytes:
            with self.open(instance) as log:
                log.write(f"[pai-sdk] {text}\n".encode())

    def size_bytes(self, instance: str) -> int:
        """The size of the log; 0 if there is none."""
        try:
            return self._sandbox.log_file(instance).stat().st_size
        except FileNotFoundError:
            return 0

    def text_from(self, instance: str, offset: int, *, longest_bytes: int = 64 * 1024) -> str:
        """The text after an offset; of a long text, its end."""
        with self._sandbox.log_file(instance).open("rb") as log:
            log.seek(max(offset, self.size_bytes(instance) - longest_bytes))
            return log.read(longest_bytes).decode(errors="replace")

    def sample(self, now: float) -> None:
        """Note when each log had which size, so that lines can be found by their time."""
        for instance, sampled_bytes in self._sampled_bytes.items():
            size_bytes = self.size_bytes(instance)
            if size_bytes != sampled_bytes:
                # A full disk must not stop the job; the sizes are noted at the next sample.
                with suppress(OSError):
                    append_to(self._sandbox.times_file(instance), f"{now:.3f} {size_bytes}\n".encode("ascii"))
                    self._sampled_bytes[instance] = size_bytes
