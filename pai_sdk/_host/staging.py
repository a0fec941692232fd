"""Fills the folder of a job before its first attempt: the steps of the service and of local jobs, in one order."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pai_sdk._host.agent.sandbox import RESUMED_CHANNELS
from pai_sdk._host.execution.base import JobFiles
from pai_sdk._host.execution.mounted_folders import make_files_executable, record_mounted
from pai_sdk._host.execution.output_uploader import record_resumed
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.roles import Mount
from pai_sdk._wire.pai.spec import CodeDir, InputChannel, OutputChannel


class Staging(ABC):
    """Copies code, inputs and earlier checkpoints of one job to where its instances read them."""

    def __init__(self, files: JobFiles, request: TrainingJobRequest) -> None:
        self.files = files
        self.request = request

    def fill(self) -> None:
        """Fills the folder; may be called again after a kill."""
        request = self.request
        # A killed process may have left incomplete files.
        self.files.clear(request)
        for output in request.output_channels:
            self.check_output(output)
        if request.effective_code_dir is not None:
            self.copy_code(request.effective_code_dir)
        for channel in request.input_channels:
            self.fill_input(channel)
        for output in request.output_channels:
            self.fill_output(output, is_resumed=output.name in RESUMED_CHANNELS)
        for number, mount in enumerate(request.mounts or ()):
            self.fill_mount(number, mount)
            if not mount.is_clone:  # git knows the modes of its files
                make_files_executable(self.files.sandbox.mount_dir(number))
            if mount.is_saved:
                record_mounted(self.files.sandbox, number, self.files.mount(number))
        record_resumed(self.files, [output.name for output in request.output_channels])

    def check_output(self, channel: OutputChannel) -> None:
        """Raises an error if an output cannot be saved at its URI; called before anything is copied."""
        return

    @abstractmethod
    def copy_code(self, code: CodeDir) -> None:
        """Copies the code, so that later changes of the author do not affect the job."""

    @abstractmethod
    def fill_input(self, channel: InputChannel) -> None:
        """Copies or mounts an input."""

    @abstractmethod
    def fill_mount(self, number: int, mount: Mount) -> None:
        """Copies the files of a mount, or checks one that is used in place."""

    @abstractmethod
    def fill_output(self, channel: OutputChannel, *, is_resumed: bool) -> None:
        """Prepares the folder of an output; a resumed one begins with the files at its URI, if there are any."""
