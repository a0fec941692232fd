"""Names of files that declare other files complete: the commits of traces.

A commit is moved after all other files, because readers of a commit read the blocks before it. The content of a
commit is defined in `pai_sdk._data.trace.trace_files`; a sync needs only the order.
"""

from __future__ import annotations

import re

__all__ = ["committed_by"]

# `<session>-committed.parquet` of earlier versions, `<session>-<n>blocks-<n>bytes-committed.parquet` of this one.
_COMMIT = re.compile(r"(?P<session>.*rank\d+-\w+-\w+-[0-9a-f]+)(?:-\d+blocks-\d+bytes)?-committed\.parquet")


def committed_by(path: str) -> str | None:
    """Returns the common prefix of the files that a commit declares complete; None for other files."""
    match = _COMMIT.fullmatch(path)
    return match["session"] if match else None
