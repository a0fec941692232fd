"""Downloads a file or a folder from OSS: in parallel, and never outside of the target."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.errors import StorageError, TransferError
from pai_sdk.storage.file_download import FileDownload
from pai_sdk.storage.leftovers import sweep
from pai_sdk.storage.objects import ObjectInfo, make_folder, must_be_no_file
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["TargetFolder", "download"]

_NOT_IN_NAMES = "\0" if os.sep == "/" else "\0\\:"


def download(
    client: OssClient,
    uri: OssUri,
    target: str | Path,
    *,
    progress: bool = True,
    workers: int = 16,
    skip_unchanged: bool = True,
) -> Path:
    """Fetch a file or a folder.

    Args:
        client: reads the objects.
        uri: a file, or a folder; a name without a slash at its end is a folder if there is no such file.
        target: for a folder, the local folder its content goes into; for a file, the local file, or an existing
            folder to put it in.
        progress: show a bar.
        workers: threads.
        skip_unchanged: do not fetch a file that is there already, with the same size and the same hash.

    Returns:
        The local file or folder.

    Raises:
        StorageError: nothing is there, or a file is where a folder is to be, or the other way round.
        TransferError: some files could not be fetched; the others are complete.
    """
    target = Path(target)
    found = None if uri.is_dir else client.head(uri)
    with ByteBar("downloading", shown=progress) as bar, TransferPool(workers) as pool:
        transfer = _Transfer(client.cancelled_by(pool.stopped, pool.may_retry), pool, bar, skip_unchanged)
        if found is None:
            must_be_no_file(target)  # one error, not one for each object
            count = transfer.fetch_folder(uri.as_dir(), TargetFolder(target))
        else:
            count = 1
            target = target / uri.name if os.path.isdir(target) else target  # noqa: PTH112 - it raises nothing
            make_folder(target.parent)
            sweep(target.parent)
            transfer.fetch(found, target, uri.name)
    if pool.failures or pool.gave_up:
        raise TransferError(
            f"{len(pool.failures)} of {count} files were not fetched from {uri}{pool.why_not_all}",
            failures=pool.failures,
        )
    if not count:
        raise StorageError(
            f"{uri}: there is no such file or folder", uri=str(uri), status_code=404, code="NoSuchKey"
        )
    return target


@dataclass
class _Transfer:
    client: OssClient
    pool: TransferPool
    bar: ByteBar
    skip_unchanged: bool

    def fetch(self, info: ObjectInfo, path: Path, name: str) -> None:
        file = FileDownload(self.client, info, path, self.bar, skip_unchanged=self.skip_unchanged)
        file.begin(self.pool, name)

    def fetch_folder(self, folder: OssUri, target: TargetFolder) -> int:
        """Fetch what is in a folder; returns how many objects there were."""
        count = 0

        def fail(key: str, error: Exception) -> None:
            nonlocal count
            count += 1
            self.pool.failures[key] = error

        for info in self.client.list(folder, unnamed=fail):
            target.open()
            count += 1
            name = info.uri.key.removeprefix(folder.key)
            try:
                place = target.place(name, info.size_bytes)
            except (OSError, StorageError) as error:
                self.pool.failures[name] = error
            else:
                if place is not None:
                    self.fetch(info, place, name)
            if self.pool.gave_up:
                break
        return count


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
            StorageError: the name leads outside, or cannot be that of a file here.
        """
        is_marker = not name or name.endswith("/")
        if is_marker and size_bytes:
            raise StorageError("its key is that of a folder, but it has content; it cannot be a file here")
        parts = name.removesuffix("/").split("/") if name else []
        if any(not _is_file_name(part) for part in parts):
            raise StorageError("its key has parts that cannot be file names here, so it was not written")
        if self._taken is not None and not is_marker:
            other = self._taken.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
            if other != name:
                raise StorageError(f"this disk takes its name and {other!r} for the same, so it was not written")
        self._make(parts if is_marker else parts[:-1])
        return None if is_marker else self._root.joinpath(*parts)

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
