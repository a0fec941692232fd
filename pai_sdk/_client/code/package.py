"""Collects the files of a source folder that are uploaded for a job."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable
from pathlib import Path

from pai_sdk._client.code.ignore import IGNORE_FILES, IgnoreRules
from pai_sdk._client.code.secrets import secret_problems
from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._core.paths import expanded
from pai_sdk._data.storage.tree import FileTree, unreadable
from pai_sdk._data.storage.walk import NO_SUCH_FILE, FolderListing, accept_all, list_folder
from pai_sdk.errors import CodeError, InvalidInputError, Problem

DEFAULT_SIZE_LIMIT_BYTES = 500_000_000


def package_code(
    source_dir: str | os.PathLike[str],
    *,
    allow_secrets: bool = False,
    size_limit_bytes: int = DEFAULT_SIZE_LIMIT_BYTES,
    cloned: bool = False,
    left_behind: Callable[[str, str], None] | None = None,
) -> FileTree:
    """Collect and hash the files of a code folder, or a single file.

    Left out are matches of .gitignore and .paiignore, version control, environments and caches.

    Args:
        source_dir: the folder, or a single file.
        allow_secrets: include files that look like keys or passwords.
        size_limit_bytes: the maximum size of all files together.
        cloned: the folder is a fresh clone. All of its files were committed, so .gitignore does not apply; only
            .paiignore excludes files.
        left_behind: called with each ignored path and the reason; a folder's path ends with a slash.

    Raises:
        CodeError: the folder is missing or empty, or has files that must not be uploaded; all are listed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "train.py").write_text("print('hello')")
        ...     package_code(folder).summary()
        '1 file, 14 B'
    """
    source_dir = expanded(source_dir)
    # A single file is always uploaded.
    accept = accept_all
    if os.path.isdir(source_dir):  # noqa: PTH112 - a Path would raise for a folder that may not be read
        names = IGNORE_FILES[1:] if cloned else IGNORE_FILES
        accept = IgnoreRules(source_dir, names=names, left_behind=left_behind).accepts
    try:
        listing = list_folder(source_dir, accept=accept, hint="remove it, or name it in .paiignore")
    except CodeError:  # an ignore file cannot be read
        raise
    except InvalidInputError as error:
        raise CodeError([_missing_folder_problem(source_dir, error.problems[0].what)]) from None
    problems = [*listing.problems, *_size_problems(listing, size_limit_bytes)]
    if not allow_secrets:
        problems += secret_problems(listing)
    if not listing.files and not problems:
        problems.append(
            Problem(str(source_dir), "has no files to upload", "check the folder and its ignore rules")
        )
    if problems:
        raise CodeError([*problems, *unreadable(listing)])
    try:
        return FileTree.of(listing)
    except InvalidInputError as error:
        raise CodeError(error.problems) from error


def _missing_folder_problem(source_dir: Path, reason: str) -> Problem:
    """Returns the problem of a missing folder, with the nearest names beside it."""
    if reason != NO_SUCH_FILE:
        return Problem("source_dir", f"{str(source_dir)!r} {reason}")
    folder = source_dir.parent
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return Problem("source_dir", f"{str(source_dir)!r} does not exist, nor does its parent folder")
    hint = did_you_mean([str(folder / name) for name in nearest(source_dir.name, names, max_count=3)])
    return Problem("source_dir", f"{str(source_dir)!r} does not exist", hint or f"looked from {Path.cwd()}")


def _size_problems(listing: FolderListing, limit_bytes: int) -> list[Problem]:
    total = sum(file.size_bytes for file in listing.files)
    if total <= limit_bytes:
        return []
    largest = heapq.nlargest(10, listing.files, key=lambda file: file.size_bytes)
    lines = "".join(f"\n      {file.size_bytes / 1e6:10.1f} MB  {file.path}" for file in largest)
    message = (
        f"has {total / 1e6:.1f} MB, more than the {limit_bytes / 1e6:.1f} MB allowed; the largest files:{lines}"
    )
    hint = "\n    name what the job does not need in .paiignore; data belongs in an input channel"
    return [Problem(str(listing.root), message + hint)]
