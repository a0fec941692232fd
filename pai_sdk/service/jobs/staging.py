"""Filling a job's sandbox from the object store: its code, its inputs, and the checkpoints it goes on from."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.agent.sandbox import RESUMED_CHANNELS, Sandbox
from pai_sdk.errors import InvalidInputError, StorageError
from pai_sdk.execution.initial_outputs import note_resumed
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.spec import CodeDir, OssLocation
from pai_sdk.service.objects.integrity import DAMAGED, IntegrityCheck
from pai_sdk.storage.objects import META_EXECUTABLE
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.service.objects.index import StoredObject
    from pai_sdk.service.objects.store import ObjectStore

__all__ = ["HEADER_EXECUTABLE", "StagingCancelled", "StagingFailed", "own_uri", "stage"]

_COPY_BYTES = 1 << 20
_CLOUD = ".aliyuncs.com"
HEADER_EXECUTABLE = f"x-oss-meta-{META_EXECUTABLE}"
"""What the header of an object says of a file that can be executed."""

REASON_CODE_MISSING = "CodeNotFound"
REASON_INPUT_MISSING = "InputNotFound"
REASON_NOT_SUPPORTED = "NotSupported"
REASON_NOT_A_FILE_NAME = "InvalidObjectKey"
REASON_DISK = "StagingFailed"
REASON_DAMAGED = DAMAGED


class StagingFailed(Exception):
    """A job cannot begin.

    Attributes:
        reason_code: why, for programs.
        message: why, for people.
    """

    def __init__(self, reason_code: str, message: str) -> None:
        super().__init__(message)
        self.reason_code = reason_code
        self.message = message


class StagingCancelled(Exception):
    """The job was stopped, or the service ends, before the job started."""


def stage(
    store: ObjectStore,
    sandbox: Sandbox,
    request: TrainingJobRequest,
    *,
    is_cancelled: Callable[[], bool],
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Put code, inputs and earlier checkpoints in place. May be done again: it begins anew then.

    Args:
        store: where code and inputs lie.
        sandbox: the job's folder.
        request: the job.
        is_cancelled: asked between files, and within large ones.
        tell: is told of the earlier checkpoints, before they are copied and afterwards.

    Raises:
        StagingFailed: something is missing, or is of a kind this service cannot read.
        StagingCancelled: `is_cancelled` said so.
    """
    copier = _Copier(store, is_cancelled)
    try:
        shutil.rmtree(sandbox.ml, ignore_errors=True)
        sandbox.create(request)
        for output in request.output_channels:
            uri = own_uri(output.output_uri, f"output channel {output.name!r}")
            if not store.bucket_exists(uri.bucket):
                raise StagingFailed(
                    REASON_INPUT_MISSING,
                    f"output channel {output.name!r}: there is no bucket {uri.bucket!r} here.",
                )
        code = request.code_dir or (request.algorithm_spec.code_dir if request.algorithm_spec else None)
        if code is not None:
            copier.copy(_code_uri(code), sandbox.usercode, "the code", REASON_CODE_MISSING)
        for output in request.output_channels:
            if output.name in RESUMED_CHANNELS:
                uri = OssUri.parse(output.output_uri or "")
                copier.resume(uri, sandbox.output_dir(output.name), output.name, tell)
        note_resumed(sandbox, request)
        for channel in request.input_channels:
            what = f"input channel {channel.name!r}"
            copier.copy(
                own_uri(channel.input_uri, what), sandbox.input_dir(channel.name), what, REASON_INPUT_MISSING
            )
    except InvalidInputError as error:
        raise StagingFailed(REASON_NOT_SUPPORTED, str(error)) from error
    except StorageError as error:
        raise StagingFailed(REASON_INPUT_MISSING, str(error)) from error
    except OSError as error:
        shutil.rmtree(sandbox.ml, ignore_errors=True)  # a job that does not begin must not keep a disk full
        reason = str(error).replace(f"{sandbox.root}/", "/")  # as the job would see it
        raise StagingFailed(REASON_DISK, f"The job's files cannot be put in place: {reason}.") from error


def own_uri(uri: str | None, what: str) -> OssUri:
    """A channel's URI, when it is one in the service's own object store.

    Raises:
        StagingFailed: it lies elsewhere.
    """
    if uri is None:
        raise StagingFailed(
            REASON_NOT_SUPPORTED, f"{what} is a dataset; this service reads and writes oss:// URIs only."
        )
    if not uri.startswith("oss://"):
        raise StagingFailed(
            REASON_NOT_SUPPORTED, f"{what} is {uri[:200]!r}; this service reads and writes oss:// URIs only."
        )
    found = OssUri.parse(uri)
    _refuse_cloud(found.endpoint, what)
    return found


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


def _refuse_cloud(endpoint: str | None, what: str) -> None:
    """A service may be reached by many names, but Alibaba Cloud's are never among them."""
    host = (endpoint or "").rpartition("//")[2].partition(":")[0].rstrip("/")
    if host.endswith(_CLOUD):
        raise StagingFailed(
            REASON_NOT_SUPPORTED,
            f"{what} lies on {host}, but this service has an object store of its own: upload it there.",
        )


class _Copier:
    def __init__(self, store: ObjectStore, is_cancelled: Callable[[], bool]) -> None:
        self._store = store
        self._is_cancelled = is_cancelled

    def copy(self, uri: OssUri, target: Path, what: str, reason_if_missing: str) -> None:
        """Copy the object, or all objects of the folder, into the target folder."""
        if not self._store.bucket_exists(uri.bucket):
            raise StagingFailed(reason_if_missing, f"{what}: there is no bucket {uri.bucket!r} here.")
        first = None if uri.is_dir else next(iter(self._store.list(uri.bucket, uri.key, limit=1)), None)
        if first is not None and first.key == uri.key:
            self._check_cancelled()
            self._put(first, _below(target, uri.name, uri), what)
            return
        if self.copy_what_is_there(uri, target, what) is None:
            raise StagingFailed(
                reason_if_missing, f"{what}: there is nothing at {uri}; upload it, or mend the URI."
            )

    def resume(self, uri: OssUri, target: Path, channel: str, tell: Callable[[str], None]) -> None:
        """Copy what an earlier job has left in the folder, if anything, and tell of it."""
        folder = uri.as_dir()
        if next(iter(self._store.list(folder.bucket, folder.key, limit=1)), None) is None:
            return
        tell(f"Output channel {channel!r} begins with what is at {folder}; that is fetched now.")
        size_bytes = self.copy_what_is_there(folder, target, f"output channel {channel!r}")
        tell(f"Output channel {channel!r} begins with {size_bytes or 0:,} bytes of earlier files.")

    def copy_what_is_there(self, uri: OssUri, target: Path, what: str) -> int | None:
        """Copy all objects of the folder; how many bytes they have together, or None when there are none."""
        folder = uri.as_dir()
        size_bytes = None
        for info in self._store.list(folder.bucket, folder.key):
            self._check_cancelled()
            size_bytes = (size_bytes or 0) + info.size_bytes
            relative = info.key.removeprefix(folder.key)
            if relative:
                self._put(info, _below(target, relative.rstrip("/"), uri), what)
        return size_bytes

    def _put(self, info: StoredObject, path: Path, what: str) -> None:
        try:
            if info.key.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
            else:
                self._file(info, path, what)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise StagingFailed(
                REASON_NOT_A_FILE_NAME,
                f"{OssUri(info.bucket, info.key)} cannot be put in place: one name cannot be a file and a folder, "
                "as it is in OSS; delete the one that is not needed.",
            ) from error

    def _file(self, listed: StoredObject, path: Path, what: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            info, source = self._store.open_with_info(listed.bucket, listed.key)
        except StorageError as error:
            reason = REASON_DAMAGED if error.code == DAMAGED else REASON_INPUT_MISSING
            raise StagingFailed(reason, f"{what}: {error}") from error
        check = IntegrityCheck(info)
        with source, path.open("xb") as target:
            while piece := source.read(_COPY_BYTES):
                check.update(piece)
                target.write(piece)
                self._check_cancelled()
        if problem := check.problem():
            raise StagingFailed(REASON_DAMAGED, f"{what}: {problem}")
        if info.headers.get(HEADER_EXECUTABLE) == "true":
            path.chmod(0o755)

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise StagingCancelled


def _below(folder: Path, relative: str, uri: OssUri) -> Path:
    """The file of that name in the folder, and nowhere else."""
    parts = relative.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise StagingFailed(
            REASON_NOT_A_FILE_NAME, f"{uri}: the object {relative[:200]!r} has a name that cannot be a file's."
        )
    return folder.joinpath(*parts)
