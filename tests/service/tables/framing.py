"""The frame of Arrow data, as a client makes it."""

from __future__ import annotations

from pai_sdk._data.trace.frames import framed_content


def framed(content: bytes | memoryview) -> bytes:
    """A content in its frame."""
    return b"".join(framed_content([content]))
