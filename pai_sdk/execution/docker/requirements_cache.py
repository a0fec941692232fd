"""What local jobs have installed for their requirements, kept for later jobs with the same image and list.

    <digest>/           what one list needs in one image; mounted as `requirements` into the containers of a job
    <digest>/image      the name of the image
    <digest>/python     what pip has installed, as a base for users' packages (PYTHONUSERBASE)
    <digest>/.<name>    what the instance of that name is installing; renamed to `python` when that is done
    <digest>/complete   `python` is whole; holds its size in bytes, and was touched when a job used it last
    <digest>/kept_for   the day on which it can be used, for requirements that are not exact
    <digest>.lock       shared for a process that starts containers with it, exclusive for one that removes it

The first instance of a job installs (`instance.sh`), so no process has to wait for it. Two jobs at once both
install, and the first to finish is kept. Only a job that installs can write there; all others see it read-only.
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

from pai_sdk.agent import environments
from pai_sdk.agent.requirement_lists import EXACT, kept_for
from pai_sdk.base.files import locked, replace_file

__all__ = ["KeptRequirements", "RequirementsCache"]

_IMAGE = "image"


@dataclass(frozen=True)
class KeptRequirements:
    """The folder for the requirements of a job.

    Attributes:
        folder: on this machine.
        is_complete: whether they are installed there, so that no job needs to write to it.
    """

    folder: Path
    is_complete: bool


@dataclass(frozen=True)
class RequirementsCache:
    """Folders with installed requirements. Several processes may use it at once.

    Attributes:
        folder: where they lie.
        containers: gives the names of the containers of jobs, and the folders of this machine that they see.

    Example:
        >>> cache = RequirementsCache(Path("/srv/cache"), lambda: ({}, set()))
        >>> with cache.use(["./mine.whl"], image="python:3.11", image_id="sha256:0a", user="0:0") as kept:
        ...     kept is None
        True
    """

    folder: Path
    containers: Callable[[], tuple[set[str], set[Path]]]

    @contextmanager
    def use(
        self,
        texts: Sequence[str],
        *,
        image: str,
        image_id: str,
        user: str,
        variables: Mapping[str, str] | None = None,
    ) -> Iterator[KeptRequirements | None]:
        """Choose the folder of a job; within the block, in which the containers are made, no process removes it.

        Args:
            texts: the requirement files.
            image: the name of the image.
            image_id: the image itself.
            user: the user of the containers.
            variables: of the job; those of pip decide what is installed.

        Returns:
            None for requirements that are not kept, since they name files.
        """
        kept = kept_for(texts)
        if not kept:
            yield None
            return
        of_pip = sorted((name, value) for name, value in (variables or {}).items() if name.startswith("PIP_"))
        facts = [list(texts), image_id, user, of_pip, kept]
        folder = self.folder / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f"{folder.name}.lock"), shared=True):
            is_complete = environments.is_complete(folder)
            if is_complete:
                environments.note_use(folder)
            else:
                self._prepare(folder, image, kept)
            yield KeptRequirements(folder, is_complete)
            if not is_complete:
                self.prune()

    def _prepare(self, folder: Path, image: str, kept: str) -> None:
        """Make the folder, and remove what installations that were cut off have left."""
        folder.mkdir(exist_ok=True)
        replace_file(folder / _IMAGE, f"{image}\n", mode=0o644)
        if kept != EXACT:
            environments.note_kept_for(folder, kept)
        names, _ = self.containers()
        for draft in folder.glob(".*"):
            if draft.is_dir() and draft.name.removeprefix(".") not in names:
                shutil.rmtree(draft, ignore_errors=True)

    def prune(self) -> list[Path]:
        """Remove what was not used for 30 days or on its day, and the least recently used above 20 GiB.

        Returns:
            The folders that were removed.
        """
        if not self.folder.is_dir():
            return []
        for folder in self.folder.iterdir():
            if environments.is_complete(folder) and not (folder / "complete").stat().st_size:
                _note_size(folder)
        _, mounted = self.containers()
        return environments.prune(self.folder, is_used=mounted.__contains__)


def _note_size(folder: Path) -> None:
    """Write down how large it is; the instance that has installed it does not know."""
    with suppress(OSError):
        used_at = (folder / "complete").stat().st_mtime
        environments.mark_complete(folder)
        os.utime(folder / "complete", (used_at, used_at))
