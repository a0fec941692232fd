"""Fills the sandbox of a local job: code, inputs, and the checkpoints that it resumes from."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local.files import file_path
from pai_sdk._client.backend.local.support import links_notice, mounts_of
from pai_sdk._client.code.package import package_code
from pai_sdk._data.run.store.stored_checkpoints import unfinished_files
from pai_sdk._data.storage.input_cache import InputCache
from pai_sdk._data.storage.stores.oss import OssStore
from pai_sdk._data.storage.transfer import download
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._host.execution.base import JobFiles
from pai_sdk._host.staging import Staging
from pai_sdk._wire.pai.roles import Mount
from pai_sdk._wire.pai.spec import CodeDir, InputChannel, OssLocation, OutputChannel
from pai_sdk.errors import CodeError, ObjectNotFoundError, Problem

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

logger = logging.getLogger(__name__)


class LocalStaging(Staging):
    """Copies code and the inputs in OSS; other inputs and outputs are mounted where they are."""

    def __init__(
        self,
        files: JobFiles,
        plan: Plan,
        cache: InputCache,
        open_oss: Callable[[], OssClient],  # called only for jobs with files in OSS
        *,
        progress: bool,
    ) -> None:
        super().__init__(files, plan.request)
        self._uploads = plan.uploads
        self._cache = cache
        self._open_oss = open_oss
        self._progress = progress

    def copy_code(self, code: CodeDir) -> None:
        """Copies the code."""
        target, location = self.files.sandbox.usercode, code.location_value
        if isinstance(location, OssLocation):
            self._download(OssUri(location.bucket, location.key, location.endpoint), target)
            return
        root = Path(code.local_path)
        trees = [upload.tree for upload in self._uploads if root in (upload.tree.root, file_path(upload.uri))]
        # Without an upload, the plan was loaded from a file.
        copy_tree(trees[0] if trees else package_code(root), target)

    def fill_input(self, channel: InputChannel) -> None:
        """Fetches an input through the cache, or checks one that is mounted."""
        mounted = mounts_of(self.request).inputs.get(channel.name)
        if mounted is None:
            uri, folder = OssUri.parse(channel.input_uri or ""), self.files.sandbox.input_dir(channel.name)
            self._cache.fill(self._open_oss(), uri, folder, progress=self._progress)
        elif notice := links_notice(channel.name, mounted):
            logger.warning("%s", notice)

    def fill_mount(self, number: int, mount: Mount) -> None:
        """Copies a folder of OSS; creates one of this machine that is used in place."""
        if mount.uri.startswith("file:"):
            if mount.access == "RW":
                file_path(mount.uri).mkdir(parents=True, exist_ok=True)
            return
        source, folder = OssUri.parse(mount.uri).as_dir(), self.files.sandbox.mount_dir(number)
        if mount.access == "RO":
            self._cache.fill(self._open_oss(), source, folder, progress=self._progress)
        else:
            with suppress(ObjectNotFoundError):
                self._download(source, folder)

    def fill_output(self, channel: OutputChannel, *, is_resumed: bool) -> None:
        """Creates the folder of a mounted output; fetches the files that the job resumes from."""
        mounted = mounts_of(self.request).outputs.get(channel.name)
        if mounted is not None:
            # By this user: the engine would create a missing folder as root.
            mounted.mkdir(parents=True, exist_ok=True)
        elif is_resumed:
            source = OssUri.parse(channel.output_uri or "").as_dir()
            skip = unfinished_files(OssStore(self._open_oss(), source))
            with suppress(ObjectNotFoundError):
                self._download(source, self.files.sandbox.output_dir(channel.name), skip=skip)

    def _download(self, uri: OssUri, folder: Path, **options: Any) -> None:
        download(self._open_oss(), uri, folder, progress=self._progress, **options)


def copy_tree(tree: FileTree, target: Path) -> None:
    """Copies the current files of a tree into a folder; lists the files deleted since it was read."""
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
