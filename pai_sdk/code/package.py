"""From a folder of source code to the tree of files that a job takes along."""

from __future__ import annotations

import difflib
import heapq
import os
from collections.abc import Iterator
from pathlib import Path

from pai_sdk.code.ignore import IgnoreRules
from pai_sdk.code.secrets import looks_secret
from pai_sdk.errors import CodeError, InvalidInputError, Problem
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.walk import FolderListing, list_folder

__all__ = ["DEFAULT_SIZE_LIMIT_BYTES", "package_code"]

DEFAULT_SIZE_LIMIT_BYTES = 500_000_000


def package_code(
    source_dir: str | Path, *, allow_secrets: bool = False, size_limit_bytes: int = DEFAULT_SIZE_LIMIT_BYTES
) -> FileTree:
    """Collect the files of a code folder, or the one file that was given, and hash them.

    What .gitignore and .paiignore name stays behind, and so do version control, environments and caches.

    Args:
        source_dir: the folder, or a single file.
        allow_secrets: take files along that look like keys.
        size_limit_bytes: the most that all files together may have.

    Raises:
        CodeError: there is no such folder, nothing in it, or what must not be taken; all of it is listed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "train.py").write_text("print('hello')")
        ...     package_code(folder).summary()
        '1 file, 0.0 kB'
    """
    root = Path(source_dir).expanduser()
    if not root.exists():
        raise CodeError([_missing(root)])
    listing = list_folder(root, accept=IgnoreRules(root).accepts if root.is_dir() else lambda *_: True)
    problems = [*listing.problems, *_too_large(listing, size_limit_bytes)]
    if not allow_secrets:
        problems += _secrets(listing)
    if not listing.files and not problems:
        problems.append(Problem(str(root), "has no files to take along", "check the folder and its ignore rules"))
    if problems:
        raise CodeError(problems)
    try:
        return FileTree.of(listing)
    except InvalidInputError as error:
        raise CodeError(error.problems) from error


def _missing(root: Path) -> Problem:
    folder = root.parent
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return Problem("source_dir", f"{str(root)!r} does not exist, nor does the folder it would be in")
    near = difflib.get_close_matches(root.name, names, n=3)
    hint = f"did you mean {' or '.join(repr(str(folder / name)) for name in near)}?" if near else ""
    return Problem("source_dir", f"{str(root)!r} does not exist", hint or f"looked from {Path.cwd()}")


def _secrets(listing: FolderListing) -> Iterator[Problem]:
    for file in listing.files:
        path = listing.root / file.path
        # A link with a harmless name may lead to a key.
        target = os.path.realpath(path) if path.is_symlink() else ""
        if looks_secret(file.path) or looks_secret(target):
            yield Problem(
                file.path,
                "looks like a key or a password",
                "name it in .paiignore, or give allow_secrets=True if it must go along",
            )


def _too_large(listing: FolderListing, limit_bytes: int) -> list[Problem]:
    total = sum(file.size_bytes for file in listing.files)
    if total <= limit_bytes:
        return []
    largest = heapq.nlargest(10, listing.files, key=lambda file: file.size_bytes)
    lines = "".join(f"\n      {file.size_bytes / 1e6:10.1f} MB  {file.path}" for file in largest)
    what = f"has {total / 1e6:.1f} MB, more than the {limit_bytes / 1e6:.1f} MB allowed; the largest files:{lines}"
    hint = "\n    name what the job does not need in .paiignore; data belongs into an input channel"
    return [Problem(str(listing.root), what + hint)]
