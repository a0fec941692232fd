"""Reads text files in the encodings that editors write: UTF-8, and UTF-16 or UTF-32 with a byte order mark."""

from __future__ import annotations

import codecs

_MARKS = (  # the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decoded(content: bytes, *, errors: str = "strict") -> str:
    """Returns the text of a file, without its byte order mark; `ValueError` if it is not UTF-8 and has no mark."""
    encoding = next((encoding for mark, encoding in _MARKS if content.startswith(mark)), None)
    if encoding is not None:
        return content.decode(encoding)
    if b"\0" in content:
        raise ValueError("it has zero bytes, as UTF-16 without a byte order mark")
    return content.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors=errors)
