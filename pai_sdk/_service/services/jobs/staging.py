"""Fills a job's sandbox from the object store: code, inputs, and the checkpoints that it resumes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

from pai_sdk._data.run.store.stored_checkpoints import unfinished_files
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._host.execution.base import JobFiles
from pai_sdk._host.staging import Staging
from pai_sdk._service.odps.table_errors import TableError
from pai_sdk._service.odps.table_rights import is_table
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._service.oss.integrity import DAMAGED
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.roles import Mount
from pai_sdk._wire.pai.spec import CodeDir, InputChannel, OssLocation, OutputChannel
from pai_sdk.errors import FileNameError, InvalidInputError, ObjectNotFoundError, PathConflictError, StorageError

if TYPE_CHECKING:
    from pai_sdk._service.oss.store import ObjectStore

CloneMount: TypeAlias = Callable[[Mount, Path, Callable[[], None]], None]
"""Fills the folder of a mount with a clone, and calls a check for a stop meanwhile."""

_WORKERS = 16
_CLOUD = ".aliyuncs.com"

REASON_CODE_MISSING = "CodeNotFound"
REASON_INPUT_MISSING = "InputNotFound"
REASON_NOT_SUPPORTED = "NotSupported"
REASON_NOT_A_FILE_NAME = "InvalidObjectKey"
REASON_CLONE_FAILED = "CloneFailed"
REASON_DISK = "StagingFailed"
REASON_DAMAGED = DAMAGED


class StagingFailed(Exception):
    """Raised when a job cannot start; the message is for the user."""

    def __init__(self, reason_code: str, message: str) -> None:
        super().__init__(message)
        self.reason_code = reason_code
        self.message = message


class StagingCancelled(Exception):
    """Raised when a job is stopped, or the service shuts down, before the job has started."""


class ServiceStaging(Staging):
    """Fills the folder of a job from the object store, and from tables.

    `is_cancelled` is checked between files and within large ones: then StagingCancelled is raised. `clone` fills
    the folder of a mount with a clone. `put_table` is called with the store of a table channel, the table's URI,
    and whether the table must exist.
    """

    def __init__(
        self,
        store: ObjectStore,
        files: JobFiles,
        request: TrainingJobRequest,
        *,
        is_cancelled: Callable[[], bool],
        notify: Callable[[str], None] = lambda text: None,
        clone: CloneMount | None = None,
        put_table: Callable[[Store, str, bool], None] | None = None,
    ) -> None:
        super().__init__(files, request)
        self._store = store
        self._is_cancelled = is_cancelled
        self._notify = notify
        self._clone = clone
        self._put_table = put_table

    def fill(self) -> None:
        """Fills the folder; raises StagingFailed with a reason for the user."""
        try:
            super().fill()
        except InvalidInputError as error:
            raise StagingFailed(REASON_NOT_SUPPORTED, str(error)) from error
        except StorageError as error:
            raise StagingFailed(REASON_INPUT_MISSING, str(error)) from error
        except OSError as error:
            self.files.clear()  # frees the disk: the job will not start
            reason = str(error).replace(f"{self.files.sandbox.root}/", "/")  # the path inside of the job
            raise StagingFailed(REASON_DISK, f"The job's files cannot be put in place: {reason}.") from error

    def check_output(self, channel: OutputChannel) -> None:
        """Puts a table's description into the folder of its output; checks that the bucket of any other exists."""
        description = f"output channel {channel.name!r}"
        if self._put_as_table(channel.output_uri, self.files.output(channel.name), description, must_exist=False):
            return
        uri = store_uri(channel.output_uri, description)
        if not self._store.bucket_exists(uri.bucket):
            raise StagingFailed(REASON_INPUT_MISSING, f"{description}: there is no bucket {uri.bucket!r} here.")

    def copy_code(self, code: CodeDir) -> None:
        """Copies the code."""
        self._copy(_code_uri(code), self.files.code(), "the code", REASON_CODE_MISSING)

    def fill_input(self, channel: InputChannel) -> None:
        """Copies an input, or puts the description of a table into its folder."""
        description, folder = f"input channel {channel.name!r}", self.files.input(channel.name)
        if not self._put_as_table(channel.input_uri, folder, description, must_exist=True):
            self._copy(store_uri(channel.input_uri, description), folder, description, REASON_INPUT_MISSING)

    def fill_mount(self, number: int, mount: Mount) -> None:
        """Copies the files of a mount; one that the job may change can be empty."""
        description = f"mount {mount.path}"
        if mount.is_clone and self._clone is not None:
            self._clone(mount, self.files.sandbox.mount_dir(number), self._check_cancelled)
            self._notify(f"The code is cloned into {mount.path}.")
            return
        uri = store_uri(mount.uri, description).as_dir()
        if mount.access == "RO":
            self._copy(uri, self.files.mount(number), description, REASON_INPUT_MISSING)
        elif not self._store.bucket_exists(uri.bucket):
            raise StagingFailed(REASON_INPUT_MISSING, f"{description}: there is no bucket {uri.bucket!r} here.")
        elif self._has_objects(uri):
            self._copy_existing(uri, self.files.mount(number), description)

    def fill_output(self, channel: OutputChannel, *, is_resumed: bool) -> None:
        """Copies the files of an earlier job."""
        if is_resumed and not is_table(channel.output_uri):
            uri = OssUri.parse(channel.output_uri or "")
            self._resume(uri, self.files.output(channel.name), channel.name)

    def _put_as_table(self, uri: str | None, folder: Store, description: str, *, must_exist: bool) -> bool:
        """Puts the description of a table into a folder; returns False if a channel is no table."""
        if self._put_table is None or not is_table(uri):
            return False
        try:
            self._put_table(folder, uri or "", must_exist)
        except TableError as error:
            raise StagingFailed(REASON_INPUT_MISSING, f"{description}: {error.message}") from error
        return True

    def _copy(self, uri: OssUri, target: Store, description: str, reason_if_missing: str) -> None:
        """Copies the object, or all objects of the folder, into the target folder."""
        if not self._store.bucket_exists(uri.bucket):
            raise StagingFailed(reason_if_missing, f"{description}: there is no bucket {uri.bucket!r} here.")
        # A URI without a slash can be an object or a folder: an exact key wins.
        first = None if uri.is_dir else next(iter(self._store.list(uri.bucket, uri.key, limit=1)), None)
        if first is not None and first.key == uri.key:
            self._copy_file(uri, target, description)
        elif self._copy_existing(uri, target, description) is None:
            raise StagingFailed(
                reason_if_missing, f"{description}: nothing exists at {uri}; upload it, or correct the URI."
            )

    def _resume(self, uri: OssUri, target: Store, channel: str) -> None:
        """Copies files of an earlier job from the folder, if there are any."""
        folder = uri.as_dir()
        if not self._has_objects(folder):
            return
        self._notify(f"Output channel {channel!r} continues from the files at {folder}; downloading them.")
        skip = unfinished_files(self._store_at(folder))
        size_bytes = self._copy_existing(folder, target, f"output channel {channel!r}", skip)
        self._notify(f"Output channel {channel!r} starts with {size_bytes or 0:,} bytes of earlier files.")

    def _copy_existing(
        self, uri: OssUri, target: Store, description: str, skip: Callable[[StoredFile], bool] = lambda file: False
    ) -> int | None:
        """Copies all objects of the folder; returns their total size in bytes, or None if there are none."""
        folder = uri.as_dir()
        sync = DirSync(
            self._store_at(folder),
            target,
            remember=False,
            note=lambda action, path: self._check_cancelled(),
            skip=skip,
            workers=_WORKERS,
        )
        try:
            report = sync.attempt()
        except ObjectNotFoundError:
            return None
        self._check_cancelled()
        if report.failures:
            path, error = min(report.failures.items())
            raise self._job_error(error, folder, path, target, description) from error
        return report.moved_bytes

    def _copy_file(self, uri: OssUri, target: Store, description: str) -> None:
        folder = replace(uri, key=uri.key.removesuffix(uri.name))
        source = self._store_at(folder)
        self._check_cancelled()
        try:
            target.write(uri.name, source.read(uri.name), executable=source.head(uri.name).executable)
        except Exception as error:
            raise self._job_error(error, folder, uri.name, target, description) from error

    def _job_error(
        self, error: Exception, folder: OssUri, path: str, target: Store, description: str
    ) -> Exception:
        """Converts the error of a file to the error of the job."""
        if isinstance(error, PathConflictError):
            return StagingFailed(
                REASON_NOT_A_FILE_NAME,
                f"{self._key_in_two_roles(folder.join(path))} cannot be put in place: one name cannot be a file "
                "and a folder, as it is in OSS; delete the one that is not needed.",
            )
        if isinstance(error, InvalidInputError | FileNameError):
            message = f"{folder}: the object {path[:200]!r} has a name that cannot be a file's."
            return StagingFailed(REASON_NOT_A_FILE_NAME, message)
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError):
            return OSError(cause.errno, cause.strerror, unquote(urlsplit(target.uri).path) + path)
        if isinstance(error, StorageError):
            reason = REASON_DAMAGED if error.code == DAMAGED else REASON_INPUT_MISSING
            return StagingFailed(reason, f"{description}: {error}")
        return error

    def _key_in_two_roles(self, uri: OssUri) -> OssUri:
        """Returns the first key below an object that is also a folder; the key itself if there is none."""
        below = next(iter(self._store.list(uri.bucket, uri.as_dir().key, limit=1)), None)
        return uri if below is None else replace(uri, key=below.key)

    def _store_at(self, folder: OssUri) -> BucketStore:
        return BucketStore(self._store, folder, check_cancelled=self._check_cancelled)

    def _has_objects(self, folder: OssUri) -> bool:
        return next(iter(self._store.list(folder.bucket, folder.key, limit=1)), None) is not None

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise StagingCancelled


def store_uri(uri: str | None, description: str) -> OssUri:
    """Parses a channel's URI; raises StagingFailed if it is not in the service's object store."""
    if uri is None:
        raise StagingFailed(
            REASON_NOT_SUPPORTED, f"{description} is a dataset; this service reads and writes oss:// URIs only."
        )
    if not uri.startswith("oss://"):
        raise StagingFailed(
            REASON_NOT_SUPPORTED,
            f"{description} is {uri[:200]!r}; this service reads and writes oss:// URIs only.",
        )
    parsed = OssUri.parse(uri)
    _refuse_cloud(parsed.endpoint, description)
    return parsed


def _code_uri(code: CodeDir) -> OssUri:
    location = code.location_value
    if code.location_type.lower() != "oss":
        raise StagingFailed(
            REASON_NOT_SUPPORTED,
            f"the code lies in {code.location_type[:60]!r}; this service reads code from OSS only.",
        )
    if not isinstance(location, OssLocation):
        raise StagingFailed(REASON_CODE_MISSING, "the location of the code needs Bucket and Key.")
    _refuse_cloud(location.endpoint, "the code")
    return OssUri(location.bucket, location.key)


def _refuse_cloud(endpoint: str | None, description: str) -> None:
    """Refuses hosts of Alibaba Cloud; other names of this service cannot be checked, and are accepted."""
    host = (endpoint or "").rpartition("//")[2].partition(":")[0].rstrip("/")
    if host.endswith(_CLOUD):
        raise StagingFailed(
            REASON_NOT_SUPPORTED,
            f"{description} lies on {host}, but this service has an object store of its own: upload it there.",
        )
