"""Files of a job whose instances use the job's folder on this machine: processes and containers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pai_sdk._core.files import replace_file
from pai_sdk._data.logs.reader import InstanceLog
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._host.agent.sandbox import HasChannels, Sandbox
from pai_sdk._host.execution.base import JobFiles

_OUTPUTS_IN_JOB = "/ml/output"


class JobFolder(JobFiles):
    """Reads and writes the job's folder, see `Sandbox`; `outputs` maps channels to folders outside it."""

    def __init__(self, sandbox: Sandbox, outputs: Mapping[str, Path] | None = None) -> None:
        self.sandbox = sandbox
        self._outputs = outputs or {}

    def clear(self, request: HasChannels | None = None) -> None:
        """Removes the job's files; with a request, creates its folders again."""
        for folder in (self.sandbox.ml, self.sandbox.mounts_dir):
            shutil.rmtree(folder, ignore_errors=True)
        if request is not None:
            self.sandbox.create(request)

    def code(self) -> Store:
        """Returns the store of the code folder."""
        return LocalStore(self.sandbox.usercode)

    def input(self, channel: str) -> Store:
        """Returns the store of an input channel."""
        return LocalStore(self.sandbox.input_dir(channel))

    def output(self, channel: str) -> Store:
        """Returns the store of an output channel. Links of the job that point outside it are errors."""
        return LocalStore(self._output_dir(channel), links="inside")

    def mount(self, number: int) -> Store:
        """Returns the store of a mount. Links of the job that point outside it are errors."""
        return LocalStore(self.sandbox.mount_dir(number), links="inside")

    def write_table_key(self, text: str) -> None:
        """Writes the key for tables with mode 0600."""
        file = self.sandbox.odps_credential_file
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text, mode=0o600)

    def log(self, instance: str) -> InstanceLog:
        """Returns the log of an instance, with the recorded times beside it."""
        return InstanceLog(self.sandbox.log_file(instance))

    def mend_links(self, channel: str) -> None:
        """Rewrites links with absolute targets in `/ml/output` so that they resolve on this machine too."""
        folder, job_path = self._output_dir(channel), f"{_OUTPUTS_IN_JOB}/{channel}"
        for parent, folders, files in os.walk(folder):
            for path in (Path(parent, name) for name in (*folders, *files)):
                with suppress(OSError):
                    target = path.readlink() if path.is_symlink() else None
                    if target is not None and target.is_relative_to(job_path):
                        path.unlink()
                        path.symlink_to(os.path.relpath(folder / target.relative_to(job_path), parent))

    def _output_dir(self, channel: str) -> Path:
        return self._outputs.get(channel) or self.sandbox.output_dir(channel)
