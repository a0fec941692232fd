"""The names of a trace's Parquet files, and the selection of files to read.

    run=<run id>/rank<rank>-<attempt>-<session>-<random>-<block>.parquet
    run=<run id>/rank<rank>-<attempt>-<session>-<random>-<n>blocks-<n>bytes-committed.parquet    by the commit

Attempt and session are the times at which a writer was created and at which it started a session. The files of a
session are read after its commit, as in a table: a process that is killed leaves blocks without a commit, and
their steps are written again when the run resumes. The blocks cannot be stored elsewhere until the commit, because
object storages do not rename.

The commit has no rows. Its name has the number of the session's blocks and their total bytes, so a listing shows
whether all of them exist: a folder that is being synced can have the commit before some blocks, and a sync can
    have
lost one. The numbers are in the name, because reading each commit would cost a request.

Commits of earlier versions have no numbers; their blocks are read without this check. Files with other names, such
as those of still earlier versions of pai_sdk, are always read.
"""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from pai_sdk._data.storage.stored_file import StoredFile

SUFFIX = ".parquet"

_TIME = r"\d{8}T\d{12}"
_NAME = re.compile(
    rf"(?P<session>rank(?P<rank>\d+)-(?P<attempt>{_TIME})-{_TIME}-[0-9a-f]+)-"
    r"(?:(?P<block>\d+)|(?:(?P<blocks>\d+)blocks-(?P<bytes>\d+)bytes-)?committed)\.parquet"
)
_OUTSIDE_OF_RUNS = "it is not in the folder of a run"
_NOT_COMMITTED = "its writer has not committed it (yet)"


def new_attempt() -> str:
    """Returns the time now in the form of the names, which sort by time."""
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")


def new_session(rank: int, attempt: str) -> str:
    """Returns a unique prefix for the names of a session's files."""
    return f"rank{rank}-{attempt}-{new_attempt()}-{secrets.token_hex(6)}"


def block_name(session: str, block_id: int) -> str:
    """Returns the name of a block."""
    return f"{session}-{block_id:05}{SUFFIX}"


def commit_name(session: str, sizes_bytes: Sequence[int]) -> str:
    """Returns the name of the file that commits a session with blocks of these sizes."""
    return f"{session}-{len(sizes_bytes)}blocks-{sum(sizes_bytes)}bytes-committed{SUFFIX}"


def parse_attempt(path: str) -> tuple[int | None, str | None]:
    """Returns the rank and the attempt in the name of a file; None for other names."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return (int(match["rank"]), match["attempt"]) if match else (None, None)


def parse_partitions(path: str) -> dict[str, str]:
    """Returns the names and values in the folders of a path."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {name: value for name, sign, value in pairs if sign and name}


@dataclass
class RunFiles:
    """The files of a folder, by the way they are treated."""

    read: list[StoredFile] = field(default_factory=list)  # the files with rows to read
    foreign: dict[str, str] = field(default_factory=dict)  # path to reason, of files that no trace has written
    # Path to reason, of commits with missing blocks, and of the existing blocks of such commits.
    incomplete: dict[str, str] = field(default_factory=dict)
    uncommitted: dict[str, str] = field(default_factory=dict)  # path to reason, of blocks without a commit

    @property
    def unread(self) -> dict[str, str]:
        """Returns path to reason, of all files that are not read."""
        return self.foreign | self.incomplete | self.uncommitted


@dataclass
class _Session:
    """The files of one session in one folder."""

    blocks: list[StoredFile] = field(default_factory=list)
    commits: list[tuple[StoredFile, re.Match[str]]] = field(default_factory=list)

    def missing(self) -> str:
        """Returns why the blocks do not match the commit; empty if they do, or if the commit has no numbers."""
        size_bytes = sum(block.size_bytes for block in self.blocks)
        for _, name in self.commits:
            if name["blocks"] is not None and (int(name["blocks"]), int(name["bytes"])) != (
                len(self.blocks),
                size_bytes,
            ):
                return (
                    f"its commit has {name['blocks']} blocks with {name['bytes']} bytes, and {len(self.blocks)} "
                    f"with {size_bytes} bytes exist: others are still being copied, or were lost"
                )
        return ""


def select_files(files: Iterable[StoredFile], *, uncommitted: bool = False) -> RunFiles:
    """Selects the files with rows to read; with `uncommitted`, also blocks without a complete commit."""
    parquet = [file for file in files if file.path.endswith(SUFFIX)]
    runs = {file.path: parse_partitions(file.path).get("run", "") for file in parquet}
    has_runs = any(runs.values())
    result = RunFiles()
    sessions: defaultdict[tuple[str, str], _Session] = defaultdict(_Session)
    for file in parquet:
        folder, _, base = file.path.rpartition("/")
        name = _NAME.fullmatch(base)
        if name and name["block"] is None:
            sessions[folder, name["session"]].commits.append((file, name))
        elif has_runs and not runs[file.path]:
            result.foreign[file.path] = _OUTSIDE_OF_RUNS
        elif name:
            sessions[folder, name["session"]].blocks.append(file)
        else:
            result.read.append(file)
    for session in sessions.values():
        if uncommitted:
            result.read += session.blocks
        elif not session.commits:
            result.uncommitted |= dict.fromkeys((file.path for file in session.blocks), _NOT_COMMITTED)
        elif missing := session.missing():
            paths = [file.path for file in (*session.blocks, *(file for file, _ in session.commits))]
            result.incomplete |= dict.fromkeys(paths, missing)
        else:
            result.read += session.blocks
    result.read.sort(key=lambda file: file.path)
    return result
