"""What shows that something goes on, where there is somebody to look: a bar for bytes, a clock for the rest."""

from __future__ import annotations

import sys
import threading
from functools import partial
from importlib.util import find_spec
from typing import Any

from pai_sdk.base.kernel import in_notebook

__all__ = ["ByteBar", "FileShare", "PassingTime"]

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
            self._bar = _tqdm()(
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


class PassingTime:
    """What happens and for how long, in a terminal or a notebook; nothing anywhere else.

    Args:
        description: what happens.
        patience_s: nothing is shown of what takes no longer.
    """

    def __init__(self, description: str, *, patience_s: float = _PATIENCE_S) -> None:
        self._bar: Any = None
        if _somebody_looks():
            form = "{desc} {elapsed}"
            self._bar = _tqdm()(desc=description, bar_format=form, delay=patience_s, miniters=0, leave=False)

    def __enter__(self) -> PassingTime:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def goes_on(self) -> None:
        """It has not ended yet; to be called often."""
        if self._bar is not None:
            self._bar.update(0)


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
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _tqdm() -> Any:
    """The class of bars that fits: the notebook's own needs ipywidgets, and complains where they are missing."""
    if in_notebook() and find_spec("ipywidgets") is None:
        from tqdm.std import tqdm as plain

        return partial(plain, file=sys.stdout)  # what is left of a bar on stderr is a red box
    from tqdm.auto import tqdm

    return tqdm
