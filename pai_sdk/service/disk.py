"""What is said, by whomever, when a disk takes no more: it is full, or cannot be written."""

from __future__ import annotations

__all__ = ["is_about_room", "is_read_only"]

_FULL = ("disk is full", "No space left on device", "Disk quota exceeded")
_READ_ONLY = ("readonly database", "Read-only file system")


def is_about_room(error: BaseException) -> bool:
    """Whether an error says that a disk is full."""
    return any(words in str(error) for words in _FULL)


def is_read_only(error: BaseException) -> bool:
    """Whether an error says that nothing can be written where it could be before."""
    return any(words in str(error) for words in _READ_ONLY)
