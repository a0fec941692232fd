"""Downloads a file or a folder from OSS: in parallel, and never outside of the target."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.errors import TransferError
from pai_sdk.storage.file_download import FileDownload
from pai_sdk.storage.leftovers import sweep
from pai_sdk.storage.local_store import LocalStore
from pai_sdk.storage.objects import ObjectInfo, make_folder, must_be_no_file
from pai_sdk.storage.oss_store import OssStore
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.progress import ByteBar
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.sync import DirSync
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient

__all__ = ["download"]


def download(
    client: OssClient,
    uri: OssUri,
    target: str | Path,
    *,
    progress: bool = True,
    workers: int | None = None,
    skip_unchanged: bool = True,
    skip: Callable[[StoredFile], bool] = lambda file: False,
) -> Path:
    """Fetch a file or a folder.

    Args:
        client: reads the objects.
        uri: a file, or a folder; a name without a slash at its end is a folder if there is no such file.
        target: for a folder, the local folder its content goes into; for a file, the local file, or an existing
            folder to put it in.
        progress: show a bar.
        workers: threads; None for many for small files, and few for large ones.
        skip_unchanged: do not fetch a file that is there already, with the same size and the same hash.
        skip: called with each file of a folder; what it accepts is not fetched.

    Returns:
        The local file or folder.

    Raises:
        StorageError: nothing is there, or a file is where a folder is to be, or the other way round.
        TransferError: some files could not be fetched; the others are complete.
    """
    target = Path(target)
    found = None if uri.is_dir else client.head(uri)
    if found is not None:
        target = target / uri.name if os.path.isdir(target) else target  # noqa: PTH112 - it raises nothing
        return _download_file(client, found, target, progress=progress, skip_unchanged=skip_unchanged)
    must_be_no_file(target)  # one error, not one for each object
    report = DirSync(
        OssStore(client, uri),
        LocalStore(target),
        checksum=skip_unchanged,
        remember=False,
        progress=progress,
        title="downloading",
        workers=workers,
        skip=skip,
    ).attempt()
    failures = {**report.unlisted, **report.failures}
    count = report.files + len(report.unlisted)
    if failures or report.gave_up:
        raise TransferError(
            f"{len(failures)} of {count} files were not fetched from {uri}{report.why_not_all}", failures=failures
        )
    if not count:
        make_folder(target)  # an object that stands for the folder itself
    return target


def _download_file(
    client: OssClient, found: ObjectInfo, target: Path, *, progress: bool, skip_unchanged: bool
) -> Path:
    make_folder(target.parent)
    sweep(target.parent)
    with ByteBar("downloading", shown=progress) as bar, TransferPool() as pool:
        client = client.cancelled_by(pool.stopped, pool.may_retry)
        FileDownload(client, found, target, bar, skip_unchanged=skip_unchanged).begin(pool, found.uri.name)
    if pool.failures:
        raise TransferError(f"1 of 1 files were not fetched from {found.uri}", failures=pool.failures)
    return target
