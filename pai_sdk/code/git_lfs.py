"""Git LFS: what a clone has of a large file without git-lfs is three lines that point to it."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger(__name__)

_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_LARGEST_POINTER_BYTES = 1024


def warn_of_pointers(root: Path, url: str) -> None:
    """Warn of files of a clone whose content was not fetched.

    Args:
        root: the clone.
        url: of what, for the message.
    """
    pointers = []
    for folder, folders, names in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        pointers += [
            str(path.relative_to(root)) for path in map(Path(folder).joinpath, names) if _is_pointer(path)
        ]
    if pointers:
        few = ", ".join(sorted(pointers)[:5]) + (", …" if len(pointers) > 5 else "")
        _log.warning(
            "%s: %d file(s) came as Git LFS pointers, without their content: %s; install git-lfs, run "
            "`git lfs install`, and submit again",
            url,
            len(pointers),
            few,
        )


def _is_pointer(path: Path) -> bool:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or not len(_LFS_POINTER) < status.st_size < _LARGEST_POINTER_BYTES:
        return False
    with path.open("rb") as stream:
        return stream.read(len(_LFS_POINTER)) == _LFS_POINTER
