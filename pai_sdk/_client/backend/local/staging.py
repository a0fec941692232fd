"""Fills the sandbox of a local job: code, inputs, and the checkpoints that it resumes from. Copies its outputs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._client.backend.base import Upload
from pai_sdk._client.backend.local.support import file_path, links_notice
from pai_sdk._client.code.package import package_code
from pai_sdk._data.run.store.stored_checkpoints import unfinished_files
from pai_sdk._data.storage.input_cache import InputCache
from pai_sdk._data.storage.objects import make_folder
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.stores.oss import OssStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk._data.storage.transfer import download
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._host.agent.sandbox import RESUMED_CHANNELS
from pai_sdk._host.execution.base import JobFiles, Mounts
from pai_sdk._host.execution.output_uploader import record_resumed
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import OssLocation
from pai_sdk.errors import CodeError, ObjectNotFoundError, Problem, TransferError

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

logger = logging.getLogger(__name__)


class Staging:
    """Fills sandboxes; `open_oss` is called only for jobs with files in OSS."""

    def __init__(self, cache_dir: Path, open_oss: Callable[[], OssClient]) -> None:
        self._cache = InputCache(cache_dir)
        self._open_oss = open_oss

    def stage(
        self, request: TrainingJobRequest, files: JobFiles, uploads: Sequence[Upload], *, progress: bool
    ) -> None:
        """Fills the sandbox of a job before its first attempt."""
        sandbox, mounts = files.sandbox, mounts_of(request)
        self._copy_code(request, uploads, sandbox.usercode, progress=progress)
        for channel in request.input_channels:
            if channel.name in mounts.inputs:
                notice = links_notice(channel.name, mounts.inputs[channel.name])
                if notice:
                    logger.warning("%s", notice)
            else:
                uri, folder = OssUri.parse(channel.input_uri or ""), sandbox.input_dir(channel.name)
                self._cache.fill(self._open_oss(), uri, folder, progress=progress)
        for output in request.output_channels:
            if output.name in mounts.outputs:
                # By this user: the engine would create a missing folder as root.
                mounts.outputs[output.name].mkdir(parents=True, exist_ok=True)
            elif output.name in RESUMED_CHANNELS:
                self._resume(output.output_uri or "", sandbox.output_dir(output.name), progress=progress)
        record_resumed(files, [output.name for output in request.output_channels])

    def _copy_code(
        self, request: TrainingJobRequest, uploads: Sequence[Upload], usercode: Path, *, progress: bool
    ) -> None:
        """Copies the code into the sandbox, so that later changes of the author do not affect the job."""
        code = request.code_dir or (request.algorithm_spec.code_dir if request.algorithm_spec else None)
        if code is None:
            return
        location = code.location_value
        if isinstance(location, OssLocation):
            uri = OssUri(location.bucket, location.key, location.endpoint)
            download(self._open_oss(), uri, usercode, progress=progress)
            return
        root = Path(code.local_path)
        planned = [upload.tree for upload in uploads if upload.tree.root == root or file_path(upload.uri) == root]
        # Without an upload, the plan was loaded from a file.
        copy_tree(planned[0] if planned else package_code(root), usercode)

    def _resume(self, uri: str, folder: Path, *, progress: bool) -> None:
        """Downloads the files with which this job resumes an earlier one, if there are any."""
        source = OssUri.parse(uri).as_dir()
        skip = unfinished_files(OssStore(self._open_oss(), source))
        with suppress(ObjectNotFoundError):
            download(self._open_oss(), source, folder, progress=progress, skip=skip)


def mounts_of(request: TrainingJobRequest) -> Mounts:
    """Returns the local files and folders that are mounted into the containers of a job."""
    inputs = {channel.name: channel.input_uri or "" for channel in request.input_channels}
    outputs = {channel.name: channel.output_uri or "" for channel in request.output_channels}
    return Mounts(
        {name: file_path(uri) for name, uri in inputs.items() if not uri.startswith("oss://")},
        {name: file_path(uri) for name, uri in outputs.items() if uri.startswith("file:")},
    )


def copy_tree(tree: FileTree, target: Path) -> None:
    """Copies the current files of a tree into a folder; lists those that were deleted since it was read."""
    problems = []
    for entry in tree.entries:
        destination = target / entry.path
        destination.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(tree.root / entry.path, destination)
        except OSError as error:
            problems.append(Problem(entry.path, f"cannot be copied: {error.strerror or error}"))
            continue
        if entry.executable:
            destination.chmod(destination.stat().st_mode | 0o111)
    if problems:
        raise CodeError(problems)


def copy_output(source: Path, target: Path) -> None:
    """Copies an output folder of a job, files in place of links; reports all files that could not be copied."""
    make_folder(target)
    # A link to a target outside of the folder is a failure, and is not followed; the other files are copied.
    report = DirSync(LocalStore(source, links="inside"), LocalStore(target), remember=False).attempt()
    failures = {**report.unlisted, **report.failures}
    if failures:
        raise TransferError(f"{len(failures)} files were not copied from {source}", failures=failures)
