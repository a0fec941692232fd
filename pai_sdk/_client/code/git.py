"""Code from a git repository, in a temporary clone."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from pai_sdk._core.git.clone import DEFAULT_TIMEOUT_S, clone
from pai_sdk._core.git.git_config import parse_git_config
from pai_sdk.errors import CodeError, Problem


def checkout(
    git_config: Mapping[str, str],
    source_dir: str | os.PathLike[str] | None = None,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> tuple[Path, Checkout]:
    """Clones one state of a repository into a temporary folder, which exists as long as the second result.

    `git_config` has `repo` (any https or ssh URL), and optionally `branch` (or tag), `commit`, `username`,
    `password`, `token`. Returns the requested folder or file within the clone, and the clone. `timeout_s` is for
    all commands together.
    """
    source = parse_git_config(git_config)
    clone_dir = Checkout(Path(tempfile.mkdtemp(prefix="pai-git-")))
    try:
        clone(source, clone_dir.path, timeout_s=timeout_s)
        return _within(clone_dir.path, source_dir), clone_dir
    except BaseException:
        clone_dir.close()
        raise


class Checkout:
    """A temporary clone; removed by `close`, or when it is garbage-collected."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Also runs at the end of the program, unlike `__del__`.
        self._remove = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    def close(self) -> None:
        """Removes the folder."""
        self._remove()


def _within(root: Path, source_dir: str | os.PathLike[str] | None) -> Path:
    if source_dir is None:
        return root
    # Joining an absolute path would leave the clone, and so may `..` and links.
    path = root / source_dir
    if Path(source_dir).is_absolute() or not path.resolve().is_relative_to(root.resolve()):
        message = f"{str(source_dir)!r} is not within the repository"
        raise CodeError(
            [Problem("source_dir", message, "with git_config, give a path relative to the repository")]
        )
    if not path.exists():
        folders = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and entry.name != ".git")
        hint = f"its folders are {', '.join(folders[:10])}" if folders else "it has no folders"
        raise CodeError([Problem("source_dir", f"{str(source_dir)!r} is not in the repository", hint)])
    return path
