"""The files of a job whose instances use the folder of the job on this machine: processes, and containers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pai_sdk.agent.sandbox import HasChannels, Sandbox
from pai_sdk.base.files import replace_file
from pai_sdk.execution.base import JobFiles
from pai_sdk.logs.reader import InstanceLog
from pai_sdk.storage.base import Store
from pai_sdk.storage.stores.local import LocalStore

__all__ = ["JobFolder"]

_OUTPUTS_IN_JOB = "/ml/output"


class JobFolder(JobFiles):
    """Reads and writes the job's folder, see `Sandbox`.

    Args:
        sandbox: the folder.
        outputs: output channel to the folder of this machine that it is, if that is not in the sandbox.
    """

    def __init__(self, sandbox: Sandbox, outputs: Mapping[str, Path] | None = None) -> None:
        self.sandbox = sandbox
        self._outputs = outputs or {}

    def clear(self, request: HasChannels | None = None) -> None:
        """Remove what was put in place; with a request, make its folders anew."""
        shutil.rmtree(self.sandbox.ml, ignore_errors=True)
        if request is not None:
            self.sandbox.create(request)

    def code(self) -> Store:
        """The folder of the code."""
        return LocalStore(self.sandbox.usercode)

    def input(self, channel: str) -> Store:
        """The folder of an input channel."""
        return LocalStore(self.sandbox.input_dir(channel))

    def output(self, channel: str) -> Store:
        """The folder of an output channel; a job can put any link into it, and those that lead out are errors."""
        return LocalStore(self._output_dir(channel), links="inside")

    def write_table_key(self, text: str) -> None:
        """Write the key for tables."""
        file = self.sandbox.odps_credential_file
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text, mode=0o600)

    def log(self, instance: str) -> InstanceLog:
        """The log of an instance; the notes of its sizes are beside it."""
        return InstanceLog(self.sandbox.log_file(instance))

    def mend_links(self, channel: str) -> None:
        """Make links that name a place in an output channel as the job saw it lead there on this machine, too."""
        folder, seen_as = self._output_dir(channel), f"{_OUTPUTS_IN_JOB}/{channel}"
        for parent, folders, files in os.walk(folder):
            for path in (Path(parent, name) for name in (*folders, *files)):
                with suppress(OSError):
                    target = path.readlink() if path.is_symlink() else None
                    if target is not None and target.is_relative_to(seen_as):
                        path.unlink()
                        path.symlink_to(os.path.relpath(folder / target.relative_to(seen_as), parent))

    def _output_dir(self, channel: str) -> Path:
        return self._outputs.get(channel) or self.sandbox.output_dir(channel)
