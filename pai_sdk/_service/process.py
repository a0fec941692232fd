"""Settings that a serving process makes for itself, once, at its start."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from contextlib import suppress

_SWITCH_S = 0.001
_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8  # from glibc's malloc.h
_ARENAS = 2
_MAX_UNUSED_BYTES = 128 << 10
_NEW_OBJECTS = 10_000  # more than a request for a thousand runs creates and frees


def prepare_threads() -> None:
    """Sets the process up for many threads that compute for requests; call it before they start."""
    # The collector stops all threads while it searches all objects. With Python's threshold of 700, a few
    # requests for many runs cause a full collection.
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    # Threads release the GIL for the event loop earlier than after Python's 5 ms.
    sys.setswitchinterval(_SWITCH_S)
    # By default glibc creates a memory arena per thread, up to eight per core, and freed memory stays in its
    # arena: the peak of a service under load is then a third higher.
    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
        # After a large block was freed, glibc keeps up to twice its size for later: megabytes of files that were
        # read once.
        libc.mallopt(_M_TRIM_THRESHOLD, _MAX_UNUSED_BYTES)


def allow_open_files(count: int) -> None:
    """Raises the limit of open files of this process to `count`, as far as it is allowed."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = count if hard_limit == resource.RLIM_INFINITY else min(count, hard_limit)
    if soft_limit != resource.RLIM_INFINITY and soft_limit < target:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard_limit))
