"""Installed requirements of local jobs, cached for later jobs with the same image and requirements.

    <digest>/           what one list needs in one image; mounted as `requirements` into the containers of a job
    <digest>/image      the name of the image
    <digest>/python     what pip has installed, as a base for users' packages (PYTHONUSERBASE)
    <digest>/.<name>    what the instance of that name is installing; renamed to `python` when that is done
    <digest>/complete   `python` is complete; contains its size in bytes, and its mtime is the last use by a job
    <digest>/kept_for   the day on which it can be used, for requirements that are not exact
    <digest>.lock       shared for a process that starts containers with it, exclusive for one that removes it

The first instance of a job installs (`instance.sh`), so no process has to wait for it. If two jobs install at
once, the first one to finish wins. Only a job that installs can write there; all others mount it read-only.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._core.files import locked, replace_file
from pai_sdk._host.agent import environments
from pai_sdk._host.agent.requirement_lists import EXACT, reuse_period

_IMAGE = "image"


@dataclass(frozen=True)
class CachedRequirements:
    """The folder for the requirements of a job; once complete, no job needs to write to it."""

    folder: Path
    is_complete: bool


@dataclass(frozen=True)
class RequirementsCache:
    """Folders with installed requirements. Several processes can use them at once."""

    folder: Path
    # the names of the containers of jobs, and the folders of this machine mounted into them
    containers: Callable[[], tuple[set[str], set[Path]]]

    @contextmanager
    def use(
        self,
        contents: Sequence[str],
        *,
        image: str,
        image_id: str,
        user: str,
        variables: Mapping[str, str] | None = None,
    ) -> Iterator[CachedRequirements | None]:
        """Selects the folder of a job; it is not removed within the block, which creates the containers."""
        validity = reuse_period(contents)
        # Requirements that name files cannot be cached: the files may change.
        if not validity:
            yield None
            return
        pip_variables = sorted(
            (name, value) for name, value in (variables or {}).items() if name.startswith("PIP_")
        )
        key = [list(contents), image_id, user, pip_variables, validity]
        folder = self.folder / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        self.folder.mkdir(parents=True, exist_ok=True)
        # Shared: jobs start at the same time, but `prune` takes the lock alone before it removes the folder.
        with locked(folder.with_name(f"{folder.name}.lock"), shared=True):
            is_complete = environments.is_complete(folder)
            if is_complete:
                environments.record_use(folder)
            else:
                self._prepare(folder, image, validity)
            yield CachedRequirements(folder, is_complete)
            if not is_complete:
                self.prune()

    def _prepare(self, folder: Path, image: str, validity: str) -> None:
        """Creates the folder, and removes the drafts of interrupted installations."""
        folder.mkdir(exist_ok=True)
        replace_file(folder / _IMAGE, f"{image}\n", mode=0o644)
        if validity != EXACT:
            environments.record_valid_for(folder, validity)
        names, _ = self.containers()
        # A draft with the name of an existing container is still being installed.
        for draft in folder.glob(".*"):
            if draft.is_dir() and draft.name.removeprefix(".") not in names:
                shutil.rmtree(draft, ignore_errors=True)

    def prune(self) -> list[Path]:
        """Removes what was unused for 30 days or is past its day, and the least recently used above 20 GiB."""
        if not self.folder.is_dir():
            return []
        for folder in self.folder.iterdir():
            if environments.is_complete(folder) and not (folder / "complete").stat().st_size:
                _write_size(folder)
        _, mounted = self.containers()
        return environments.prune(self.folder, is_used=mounted.__contains__)


def _write_size(folder: Path) -> None:
    """Records the size of an installation, which the instance that installed it does not know."""
    with suppress(OSError):
        used_at = (folder / "complete").stat().st_mtime
        environments.mark_complete(folder)
        # The mtime is the last use: writing the size must not count as one.
        os.utime(folder / "complete", (used_at, used_at))
