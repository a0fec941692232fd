"""The files of local jobs: their URIs, the object storage of a job, and copies of outputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pai_sdk._client.backend.base import Purpose
from pai_sdk._data.storage.objects import make_folder
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk._data.storage.transfer import download
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._wire.pai.spec import CodeDir
from pai_sdk.errors import ObjectNotFoundError, StorageError, TransferError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient


def file_uri(path: Path, *, folder: bool) -> str:
    """Returns a local file or folder as a URI; that of a folder ends with `/`."""
    uri = path.absolute().as_uri()
    return f"{uri.rstrip('/')}/" if folder else uri


def file_path(uri: str) -> Path:
    """Returns the path of a `file://` URI."""
    return Path(unquote(urlsplit(uri).path))


class LocalFiles:
    """The part of the backend that has the files of jobs: on this machine, or in an object storage.

    `open_oss` is called with the data folder of the embedded service with which a job was submitted, or None.
    """

    def __init__(self, data_dir: Path | None, open_oss: Callable[[Path | None], OssClient] | None) -> None:
        configured = data_dir or Path(os.environ.get("PAI_LOCAL_DIR") or "~/.pai/local")
        self.data_dir = configured.expanduser().absolute()
        self._open_oss = open_oss

    def tree_uri(self, tree: FileTree, purpose: Purpose) -> str:
        """Returns the folder of the files, from which code is copied, and inputs are mounted."""
        return file_uri(tree.root, folder=True)

    def local_uri(self, path: Path, *, folder: bool) -> str | None:
        """Returns the URI of a local file or folder, which jobs access directly."""
        return file_uri(path, folder=folder)

    def code_dir(self, uri: str) -> CodeDir:
        """Returns the code folder of a job, local or in OSS."""
        if uri.startswith("oss://"):
            where = OssUri.parse(uri)
            return CodeDir.oss(where.bucket, where.key, endpoint=where.endpoint)
        return CodeDir.local(str(file_path(uri)))

    def default_output(self, job_folder: str, channel: str) -> str:
        """Returns a separate folder of the job in the data folder."""
        return file_uri(self.data_dir / "outputs" / job_folder / channel, folder=True)

    def store(self, uri: str) -> Store:
        """Opens the folder of an output as a store."""
        return open_store(uri, client=self.oss() if uri.startswith("oss://") else None)

    def download(self, uri: str, target: Path, *, progress: bool = True) -> Path:
        """Downloads a file or a folder of a job's outputs."""
        if uri.startswith("oss://"):
            return download(self.oss(), OssUri.parse(uri), target, progress=progress)
        source = file_path(uri)
        if not source.exists():
            raise ObjectNotFoundError(f"{source}: no such file or folder", uri=uri)
        if source.is_dir():
            # As in OSS, an empty folder does not exist.
            if not any(files for _, _, files in os.walk(source)):
                raise ObjectNotFoundError(f"{source}: it contains no files", uri=uri)
            if not (target.exists() and target.samefile(source)):  # the output folder may be the target
                copy_output(source, target)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(source, target))

    def oss(self, embedded: str | None = None) -> OssClient:
        """Returns the client for `oss://`, of an embedded service or of the session."""
        if self._open_oss is None:
            raise StorageError("oss:// needs a session with a region and a bucket, or an endpoint")
        return self._open_oss(None if embedded is None else Path(embedded))


def copy_output(source: Path, target: Path) -> None:
    """Copies an output folder of a job, files in place of links; reports all files that could not be copied."""
    make_folder(target)
    # A link to a target outside of the folder is a failure, and is not followed; the other files are copied.
    report = DirSync(LocalStore(source, links="inside"), LocalStore(target), remember=False).attempt()
    failures = {**report.unlisted, **report.failures}
    if failures:
        raise TransferError(f"{len(failures)} files were not copied from {source}", failures=failures)
