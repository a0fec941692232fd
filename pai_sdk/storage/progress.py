"""One bar for all bytes of a transfer, where there is somebody to look at it."""

from __future__ import annotations

import sys
import threading
from typing import Any

__all__ = ["ByteBar", "FileShare"]

_PATIENCE_S = 0.5  # a bar that only flashes up tells nobody anything


class ByteBar:
    """A tqdm bar in a terminal or a notebook; nothing anywhere else. Safe to use from many threads.

    Args:
        description: what happens.
        shown: False for no bar at all.
    """

    def __init__(self, description: str, *, shown: bool) -> None:
        self._lock = threading.Lock()
        self._bar: Any = None
        if shown and _somebody_looks():
            from tqdm.auto import tqdm

            self._bar = tqdm(
                total=0,
                desc=description,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                delay=_PATIENCE_S,
                leave=False,
            )

    def __enter__(self) -> ByteBar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def expect(self, size_bytes: int) -> None:
        """That many bytes more belong to the whole."""
        if self._bar is not None:
            with self._lock:
                self._bar.total += size_bytes

    def advance(self, size_bytes: int) -> None:
        """That many bytes more are done."""
        if self._bar is not None:
            with self._lock:
                self._bar.update(size_bytes)


class FileShare:
    """What one file has added to a bar, so that it can be taken back when the file begins anew."""

    def __init__(self, bar: ByteBar) -> None:
        self._bar = bar
        self._lock = threading.Lock()
        self._done_bytes = 0

    def advance(self, size_bytes: int) -> None:
        """That many bytes more of the file are done; less, if it is negative."""
        with self._lock:
            self._done_bytes += size_bytes
        self._bar.advance(size_bytes)

    def restart(self) -> None:
        """The file begins anew."""
        self.advance(-self._done_bytes)


def _somebody_looks() -> bool:
    if "ipykernel" in sys.modules and "IPython" in sys.modules:
        return getattr(sys.modules["IPython"].get_ipython(), "kernel", None) is not None
    return sys.stderr is not None and sys.stderr.isatty()
