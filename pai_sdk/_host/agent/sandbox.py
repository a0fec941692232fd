"""The folder on a host that becomes `/ml` inside a job, with the job's logs and state beside it.

root/ml/usercode/                  the code
root/ml/input/config/              hyperparameters.json, training-job.json
root/ml/input/credential/odps.json the key for tables that are inputs
root/ml/input/data/<channel>/      each input channel
root/ml/output/<channel>/          each output channel
root/mounts/<number>/              each mount of the request
root/logs/<instance>.log           what an instance printed; .times: see logs/times.py; .cuts: see logs/cuts.py
root/resumed                       what the outputs held before the job began; see execution/initial_outputs.py
root/attempt                       how often the job was begun, where that is more than once
root/state/                        the executor's own
root/watch.json                    how far the rules about the running job have come
root/snapshots/                    what rules with the action `snapshot` have saved
root/shared/                       what the containers of a job share with their executor
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pai_sdk._core.files import replace_file
from pai_sdk.errors import InvalidInputError, Problem

RESUMED_CHANNELS = frozenset({"checkpoints"})
"""The output channels whose folder begins with the files at their URI, so that a job continues from there."""

TRASH_PREFIX = ".trash-"
"""Prefix of the names of folders that are being removed."""

# The output channel for event files.
_EVENTS = "tensorboard"
# File systems allow 255 bytes; the rest is for prefixes and suffixes.
_MAX_NAME_BYTES = 200


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


class _DefinesOutputs(Protocol):
    @property
    def output_channels(self) -> Sequence[_HasName]: ...


class _HasPath(Protocol):
    @property
    def path(self) -> str: ...


class HasChannels(Protocol):
    """The channels of a job, for a sandbox; a `TrainingJobRequest` has them."""

    @property
    def input_channels(self) -> Sequence[_HasName]:
        """Returns the requested inputs."""
        ...

    @property
    def output_channels(self) -> Sequence[_HasName]:
        """Returns the requested outputs."""
        ...

    @property
    def mounts(self) -> Sequence[_HasPath] | None:
        """Returns the folders that instances see at paths of their own."""
        ...

    @property
    def algorithm_spec(self) -> _DefinesOutputs | None:
        """Returns the algorithm, which may define further outputs."""
        ...


@dataclass(frozen=True)
class Sandbox:
    """A job's folder. The only class that knows its paths, and that decides whether a name can be one of them."""

    root: Path  # it need not exist yet

    @property
    def ml(self) -> Path:
        """Returns the folder that the job sees as `/ml`."""
        return self.root / "ml"

    @property
    def usercode(self) -> Path:
        """Returns the code, and the job's working directory."""
        return self.ml / "usercode"

    @property
    def config_dir(self) -> Path:
        """Returns the folder of `hyperparameters.json` and `training-job.json`."""
        return self.ml / "input" / "config"

    @property
    def odps_credential_file(self) -> Path:
        """Returns the key for tables that are inputs."""
        return self.ml / "input" / "credential" / "odps.json"

    @property
    def data_dir(self) -> Path:
        """Returns the parent of the input channels."""
        return self.ml / "input" / "data"

    @property
    def mounts_dir(self) -> Path:
        """Returns the parent of the mounts."""
        return self.root / "mounts"

    @property
    def logs_dir(self) -> Path:
        """Returns the logs of all instances."""
        return self.root / "logs"

    @property
    def state_dir(self) -> Path:
        """Returns the executor's folder."""
        return self.root / "state"

    @property
    def shared_dir(self) -> Path:
        """Returns the folder that the containers of a job share with their executor."""
        return self.root / "shared"

    @property
    def resumed_file(self) -> Path:
        """Returns the list of files that were in the outputs before the job started."""
        return self.root / "resumed"

    @property
    def sent_dir(self) -> Path:
        """Returns the folder of records about sent outputs, kept for all attempts like the outputs."""
        return self.root / "sent"

    def input_dir(self, channel: str) -> Path:
        """Returns the folder of one input channel."""
        return self.data_dir / _checked_name(channel, "input channel")

    def output_dir(self, channel: str) -> Path:
        """Returns the folder of one output channel."""
        return self.ml / "output" / _checked_name(channel, "output channel")

    def mount_dir(self, number: int) -> Path:
        """Returns the folder of a mount, by its position in the request."""
        return self.mounts_dir / str(number)

    def log_file(self, instance: str) -> Path:
        """Returns the log of one instance."""
        return self.logs_dir / f"{_checked_name(instance, 'instance')}.log"

    def times_file(self, instance: str) -> Path:
        """Returns the samples of a log's size: lines of `<seconds since 1970> <bytes>`."""
        return self.logs_dir / f"{_checked_name(instance, 'instance')}.times"

    def create(self, request: HasChannels) -> None:
        """Creates all folders that the request needs; existing ones stay as they are."""
        folders = [
            self.usercode,
            self.config_dir,
            self.data_dir,
            self.ml / "output",
            self.logs_dir,
            self.state_dir,
        ]
        # A channel whose name cannot be that of a folder is refused before any is created.
        folders += [self.input_dir(channel.name) for channel in request.input_channels]
        folders += [self.output_dir(name) for name in output_channels(request)]
        for number, mount in enumerate(request.mounts or ()):
            folders.append(self.mount_dir(number))
            if mount.path.startswith("/ml/"):
                folders.append(self.root / mount.path[1:])
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)

    def folders_to_remove(self, *, saved_outputs: Iterable[str], are_mounts_saved: bool = True) -> list[Path]:
        """Returns the folders that nothing reads after the job: copies, and packages that it installed."""
        # Files that exist nowhere else stay: what the job wrote beside its code, and into folders that are no
        # output channels. So do code, logs, state, and event files, which are small and read again and again.
        folders = [self.data_dir, self.state_dir / "python", self.state_dir / "requirements"]
        if are_mounts_saved:
            folders.append(self.mounts_dir)
        for name in saved_outputs:
            folder = self.output_dir(name)
            if name != _EVENTS or not self._has_files(folder):
                folders.append(folder)
        return [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]

    @staticmethod
    def _has_files(folder: Path) -> bool:
        return folder.is_dir() and not folder.is_symlink() and any(folder.iterdir())

    @property
    def attempt(self) -> int:
        """Returns the number of the current attempt; 1 for the first one."""
        try:
            return int(self._attempt_file.read_text())
        except FileNotFoundError:
            return 1

    def forget_attempt(self, following: int) -> None:
        """Resets the job to one that was not started; its other files stay as the last attempt left them."""
        # The number is written last: if this is interrupted, it is done again.
        for folder in (self.state_dir, self.shared_dir):
            if folder.exists():
                trash = folder.with_name(f"{TRASH_PREFIX}{folder.name}")
                _delete(trash)
                folder.rename(trash)
                _delete(trash)
        replace_file(self._attempt_file, str(following))

    @property
    def _attempt_file(self) -> Path:
        return self.root / "attempt"

    def remove(self) -> None:
        """Removes the folder."""
        # Renamed first, so that no reader sees a part of it, or creates it again.
        trash = self.root.with_name(f"{TRASH_PREFIX}{self.root.name}")
        with suppress(OSError):
            self.root.rename(trash)
        _delete(trash)


def output_channels(request: HasChannels) -> list[str]:
    """Returns the output channels of a job: the requested ones, and others that its algorithm defines."""
    # A channel that is defined but has no URI exists as a folder, so that code which writes there runs.
    defined = request.algorithm_spec.output_channels if request.algorithm_spec else []
    return list(dict.fromkeys([*(c.name for c in request.output_channels), *(c.name for c in defined)]))


def _checked_name(name: str, kind: str) -> str:
    """Returns a name unchanged, if it is the name of one file."""
    problem = ""
    if not name or name in (".", ".."):
        problem = "cannot be the name of a folder"
    elif "/" in name or "\\" in name:
        problem = "contains a path separator"
    elif any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        problem = "contains a control character"
    elif len(name.encode()) > _MAX_NAME_BYTES:
        problem = f"is longer than {_MAX_NAME_BYTES} bytes"
    if problem:
        raise InvalidInputError(
            [Problem(f"{kind} {name[:80]!r}", problem, "letters, digits, '_' and '-' are safe")]
        )
    return name


def _delete(folder: Path) -> None:
    # Imported late: it is 2 ms of the start of each supervisor, which rarely deletes a folder.
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
