"""The local folder that files of a store are written to: turns their paths into local files."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from pai_sdk.errors import FileNameError, NameTakenError, StorageError
from pai_sdk.storage.leftovers import sweep
from pai_sdk.storage.objects import make_folder

__all__ = ["TargetFolder"]

_NOT_IN_NAMES = "\0" if os.sep == "/" else "\0\\:"


class TargetFolder:
    """The local folder of a download: turns keys into file paths."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._is_open = False
        self._made: set[Path] = set()
        self._taken: dict[str, str] | None = None

    def open(self) -> None:
        """Make the folder itself, where there is none yet.

        Raises:
            StorageError: it cannot be made, or may not be written to.
        """
        if self._is_open:
            return
        make_folder(self._root)
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise StorageError(f"{self._root} cannot be written to; give a folder that you may write to")
        sweep(self._root)
        self._taken = {} if _is_case_blind(self._root) else None
        self._is_open = True

    def place(self, name: str, size_bytes: int) -> Path | None:
        """The local file for a key's name within the folder, its own folder made; None for a folder's marker.

        Raises:
            FileNameError: the name cannot be that of a file here.
            NameTakenError: one of its folders is a file, or it is a folder with content.
            StorageError: the name leads outside, or a folder cannot be made.
        """
        is_marker = not name or name.endswith("/")
        if is_marker and size_bytes:
            raise NameTakenError("its key is that of a folder, but it has content; it cannot be a file here")
        parts = name.removesuffix("/").split("/") if name else []
        if any(not _is_file_name(part) for part in parts):
            raise FileNameError("its key has parts that cannot be file names here, so it was not written")
        if self._taken is not None and not is_marker:
            other = self._taken.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
            if other != name:
                raise FileNameError(f"this disk takes its name and {other!r} for the same, so it was not written")
        self._make(parts if is_marker else parts[:-1])
        return None if is_marker else self._root.joinpath(*parts)

    def forget(self, folder: Path) -> None:
        """Make a folder again when a file is placed in it next; it has been removed."""
        self._made.discard(folder)

    def _make(self, parts: list[str]) -> None:
        folder = self._root
        for part in parts:
            folder = folder / part
            if folder in self._made:
                continue
            # A link that existed before may lead outside.
            if folder.is_symlink() and not folder.resolve().is_relative_to(self._root.resolve()):
                raise StorageError(f"{folder} is a link that leads outside of {self._root}; remove it")
            make_folder(folder)
            sweep(folder)
            self._made.add(folder)


def _is_case_blind(folder: Path) -> bool:
    """Whether a folder's disk takes `a` and `A` for one name, as those of macOS do."""
    folder = folder.resolve()
    named = next((each for each in (folder, *folder.parents) if each.name != each.name.swapcase()), None)
    try:
        return named is not None and named.samefile(named.with_name(named.name.swapcase()))
    except OSError:
        return False


def _is_file_name(part: str) -> bool:
    return part not in ("", ".", "..") and not any(sign in part for sign in _NOT_IN_NAMES)
