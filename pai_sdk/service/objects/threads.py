"""The threads in which files and database are touched."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """A thread pool of its own, so that a slow disk does not block other requests."""

    def __init__(self, count: int = 32) -> None:
        self._count = count

    @cached_property
    def _limiter(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(self._count)  # can only be made where the event loop runs

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function in a thread; a cancelled caller still waits for its end."""
        return await anyio.to_thread.run_sync(partial(function, *args, **options), limiter=self._limiter)
