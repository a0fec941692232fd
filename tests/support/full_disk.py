"""A disk that is nearly full, without the right to mount one: files cannot grow beyond a size."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["files_of_at_most"]


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Within it, a write of this process across the size is done in part, and one behind it is an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
