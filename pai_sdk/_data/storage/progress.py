"""Progress in a terminal or a notebook: a bar for bytes, elapsed time for everything else."""

from __future__ import annotations

import sys
import threading
from functools import partial
from importlib.util import find_spec
from typing import Any

from pai_sdk._core.kernel import in_notebook

# Quick steps show no bar.
_DELAY_S = 0.5


class ByteBar:
    """A tqdm bar in a terminal or a notebook; nothing anywhere else. Safe to use from many threads."""

    def __init__(self, description: str, *, is_visible: bool) -> None:
        # Threads of a transfer share the bar, and `update` of tqdm is not atomic.
        self._lock = threading.Lock()
        self._bar: Any = None
        if is_visible and _is_interactive():
            self._bar = _tqdm()(
                total=0,
                desc=description,
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
                delay=_DELAY_S,
                leave=False,
            )

    def __enter__(self) -> ByteBar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def expect(self, size_bytes: int) -> None:
        """Adds bytes to the total."""
        if self._bar is not None:
            with self._lock:
                self._bar.total += size_bytes

    def advance(self, size_bytes: int) -> None:
        """Adds finished bytes."""
        if self._bar is not None:
            with self._lock:
                self._bar.update(size_bytes)


NO_BAR = ByteBar("", is_visible=False)
"""For transfers that show nothing."""


class ElapsedTime:
    """A step and its elapsed time, in a terminal or a notebook; nothing anywhere else."""

    # A step that takes no longer than `patience_s` is not displayed.
    def __init__(self, description: str, *, patience_s: float = _DELAY_S) -> None:
        self._bar: Any = None
        if _is_interactive():
            form = "{desc} {elapsed}"
            self._bar = _tqdm()(desc=description, bar_format=form, delay=patience_s, miniters=0, leave=False)

    def __enter__(self) -> ElapsedTime:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def refresh(self) -> None:
        """Updates the elapsed time; to be called often."""
        if self._bar is not None:
            self._bar.update(0)


class FileShare:
    """The bytes that one file has added to a bar; they are subtracted when the file starts again."""

    def __init__(self, bar: ByteBar) -> None:
        self._bar = bar
        # Parts of one file advance in several threads.
        self._lock = threading.Lock()
        self._done_bytes = 0

    def advance(self, size_bytes: int) -> None:
        """Adds finished bytes of the file; a negative number subtracts."""
        with self._lock:
            self._done_bytes += size_bytes
        self._bar.advance(size_bytes)

    def restart(self) -> None:
        """Subtracts all bytes of the file."""
        self.advance(-self._done_bytes)


def _is_interactive() -> bool:
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _tqdm() -> Any:
    """Returns the class of bars."""
    # The class for notebooks needs ipywidgets, and warns without them.
    if in_notebook() and find_spec("ipywidgets") is None:
        from tqdm.std import tqdm as plain

        # A notebook shows a red box for stderr.
        return partial(plain, file=sys.stdout)
    from tqdm.auto import tqdm

    return tqdm
