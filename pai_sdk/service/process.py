"""What a process that serves sets for itself, once, at its start."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from contextlib import suppress

__all__ = ["allow_open_files", "prepare_threads"]

_SWITCH_S = 0.001
_M_ARENA_MAX = -8  # of glibc's malloc.h
_ARENAS = 2
_NEW_OBJECTS = 10_000  # more than a request for a thousand runs makes and frees


def prepare_threads() -> None:
    """Set the process up for many threads that compute for requests; call it before they start.

    They give way to the event loop sooner than after Python's 5 ms.
    They also share two pools of memory. By default glibc gives each thread a pool of its own, up to eight for each
    processor, and freed memory stays in its pool: the peak of a service under load is a third higher then.
    The garbage collector, which stops all threads while it looks through all objects, waits for more new ones than
    Python's 700. By default a few requests for many runs are enough for a full collection.
    """
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    sys.setswitchinterval(_SWITCH_S)
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def allow_open_files(count: int) -> None:
    """Raise our own limit as far as that may be needed, and is allowed."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = count if hard_limit == resource.RLIM_INFINITY else min(count, hard_limit)
    if soft_limit != resource.RLIM_INFINITY and soft_limit < target:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard_limit))
