"""The names of a trace's Parquet files, and which files of a folder are read.

    run=<run id>/rank<rank>-<attempt>-<session>-<random>-<block>.parquet
    run=<run id>/rank<rank>-<attempt>-<session>-<random>-committed.parquet    without rows, written by the commit

Attempt and session are the times at which a writer was made and at which it began a session. The files of a
session are read once it is committed, as in a table: a process that is killed leaves blocks without a commit, and
their steps are written again when the run resumes. The blocks cannot be kept elsewhere until the commit, because
object storages do not rename.

Files with other names, such as those of earlier versions of pai_sdk, are always read.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timezone

from pai_sdk.storage.stored_file import StoredFile

__all__ = [
    "attempt_of",
    "block_name",
    "commit_name",
    "files_of_runs",
    "new_attempt",
    "new_session",
    "partitions_of",
]

SUFFIX = ".parquet"

_TIME = r"\d{8}T\d{12}"
_NAME = re.compile(
    rf"(?P<session>rank(?P<rank>\d+)-(?P<attempt>{_TIME})-{_TIME}-[0-9a-f]+)-(?P<block>\d+|committed)\.parquet"
)
_COMMITTED = "committed"
_NOT_OF_A_RUN = "it is not in the folder of a run"
_NOT_COMMITTED = "its writer has not committed it (yet)"


def new_attempt() -> str:
    """The time now, as names have it: they are in the order of time."""
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")


def new_session(rank: int, attempt: str) -> str:
    """The beginning of the names of a session's files begin; no other session has the same."""
    return f"rank{rank}-{attempt}-{new_attempt()}-{secrets.token_hex(6)}"


def block_name(session: str, block_id: int) -> str:
    """The name of a block."""
    return f"{session}-{block_id:05}{SUFFIX}"


def commit_name(session: str) -> str:
    """The name of the file that says that a session was committed."""
    return f"{session}-{_COMMITTED}{SUFFIX}"


def attempt_of(path: str) -> tuple[int | None, str | None]:
    """The rank and the attempt that wrote a file; None where its name does not say.

    Example:
        >>> attempt_of("run=r1/rank3-20261122T171801000000-20261122T171902000000-a1-00000.parquet")
        (3, '20261122T171801000000')
    """
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return (int(found["rank"]), found["attempt"]) if found else (None, None)


def partitions_of(path: str) -> dict[str, str]:
    """The names and values in the folders of a path.

    Example:
        >>> partitions_of("dt=20261122/run=r1/rank0.parquet")
        {'dt': '20261122', 'run': 'r1'}
    """
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {name: value for name, sign, value in pairs if sign and name}


def files_of_runs(
    files: Iterable[StoredFile], *, uncommitted: bool = False
) -> tuple[list[StoredFile], dict[str, str], dict[str, str]]:
    """The files with rows to read.

    Args:
        files: all that are in the folder.
        uncommitted: read those that are not committed, too.

    Returns:
        The files; those that no trace has written; and those that are not committed. The latter two are path to
        reason.
    """
    found = [file for file in files if file.path.endswith(SUFFIX)]
    names = {file.path: _NAME.fullmatch(file.path.rpartition("/")[2]) for file in found}
    runs = {file.path: partitions_of(file.path).get("run", "") for file in found}
    committed = {name["session"] for name in names.values() if name and name["block"] == _COMMITTED}
    has_runs = any(runs.values())
    kept, foreign, without_commit = [], {}, {}
    for file in found:
        name = names[file.path]
        if name and name["block"] == _COMMITTED:
            continue
        if has_runs and not runs[file.path]:
            foreign[file.path] = _NOT_OF_A_RUN
        elif name and name["session"] not in committed and not uncommitted:
            without_commit[file.path] = _NOT_COMMITTED
        else:
            kept.append(file)
    return kept, foreign, without_commit
