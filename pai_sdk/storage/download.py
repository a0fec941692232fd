"""A file or a folder from OSS to this machine: in parallel, checked, and never outside of the target."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.errors import StorageError, TransferError
from pai_sdk.storage.objects import ContentCheck, ObjectInfo, mark_executable, replacing
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["download"]

PART_BYTES = 8 << 20
_IN_ONE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20
_NOT_IN_NAMES = "\0" if os.sep == "/" else "\0\\:"


def download(
    client: OssClient, uri: OssUri, target: str | Path, *, progress: bool = True, workers: int = 16
) -> Path:
    """Fetch a file or a folder.

    Args:
        client: reads the objects.
        uri: a file, or a folder; a name without a slash at its end that is no file is taken for a folder.
        target: for a folder, the local folder its content goes into; for a file, the local file, or an existing
            folder to put it in.
        progress: show a bar.
        workers: threads.

    Returns:
        The local file or folder.

    Raises:
        StorageError: nothing is there.
        TransferError: some files could not be fetched; the others are in place, whole.
    """
    target = Path(target)
    found = None if uri.is_dir else client.head(uri)
    with ByteBar("downloading", shown=progress) as bar, TransferPool(workers) as pool:
        if found is None:
            count = _fetch_folder(client, uri.as_dir(), _Folder(target), pool, bar)
        else:
            count = 1
            target = target / uri.name if target.is_dir() else target
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(client, found, target, pool, bar, name=uri.name)
    if pool.failures or pool.gave_up:
        gave_up = "; no answer came any more, so the rest was not tried" if pool.gave_up else ""
        raise TransferError(
            f"{len(pool.failures)} of {count} files were not fetched from {uri}{gave_up}", failures=pool.failures
        )
    if not count:
        raise StorageError(
            f"{uri}: there is no such file or folder", uri=str(uri), status_code=404, code="NoSuchKey"
        )
    return target


def _fetch_folder(client: OssClient, folder: OssUri, target: _Folder, pool: TransferPool, bar: ByteBar) -> int:
    count = 0
    for info in client.list(folder):
        count += 1
        name = info.uri.key.removeprefix(folder.key)
        try:
            place = target.place(name, info.size_bytes)
        except (OSError, StorageError) as error:
            pool.failures[name] = error
        else:
            if place is not None:
                _fetch(client, info, place, pool, bar, name=name)
        if pool.gave_up:
            break
    return count


def _fetch(
    client: OssClient, info: ObjectInfo, path: Path, pool: TransferPool, bar: ByteBar, *, name: str
) -> None:
    bar.expect(info.size_bytes)
    if info.size_bytes > _IN_ONE_BYTES:
        pool.run_file(name, partial(_fetch_in_parts, client, info, path, pool, bar))
    else:
        pool.submit_file(name, partial(_fetch_whole, client, info, path, bar))


def _fetch_whole(client: OssClient, info: ObjectInfo, path: Path, bar: ByteBar) -> None:
    client.get_file(info.uri, path)
    bar.advance(info.size_bytes)


def _fetch_in_parts(client: OssClient, listed: ObjectInfo, path: Path, pool: TransferPool, bar: ByteBar) -> None:
    info = client.head(listed.uri)  # a listing has no metadata, and so no SHA-256
    if info is None:
        raise StorageError(f"{listed.uri} was deleted meanwhile", uri=str(listed.uri), code="NoSuchKey")
    with replacing(path) as part:
        with part.open("wb") as out:

            def fetch(start: int) -> None:
                end = min(start + PART_BYTES, info.size_bytes)
                client.get_range(info, start, end, out.fileno())
                bar.advance(end - start)

            pool.run_all(partial(fetch, start) for start in range(0, info.size_bytes, PART_BYTES))
        _must_be_whole(part, info)
        mark_executable(part, info)


def _must_be_whole(path: Path, info: ObjectInfo) -> None:
    check = ContentCheck(info)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            check.update(chunk)
    fault = check.fault()
    if fault:
        raise StorageError(f"{info.uri}: {fault}", uri=str(info.uri))


class _Folder:
    """The local folder that keys become files in."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: set[Path] = set()

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
        self._make(self._root, parts if is_marker else parts[:-1])
        return None if is_marker else self._root.joinpath(*parts)

    def _make(self, folder: Path, parts: list[str]) -> None:
        if folder not in self._made:
            folder.mkdir(parents=True, exist_ok=True)
            self._made.add(folder)
        for part in parts:
            folder = folder / part
            if folder in self._made:
                continue
            # A link that was here before us may point anywhere.
            if folder.is_symlink() and not folder.resolve().is_relative_to(self._root.resolve()):
                raise StorageError(f"{folder} is a link that leads outside of {self._root}; remove it")
            folder.mkdir(exist_ok=True)
            self._made.add(folder)


def _is_file_name(part: str) -> bool:
    return part not in ("", ".", "..") and not any(sign in part for sign in _NOT_IN_NAMES)
