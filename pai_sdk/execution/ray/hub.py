"""The folder by which the executor and its mirror process work together; standard library only.

    namespace       the name of this service in the cluster
    lock            held by the mirror process
    alone           its service has ended, and it has not, since there are jobs
    active/JOB      a job that was started and has not ended: the path of its folder
    removed/JOB     a job whose folder has gone, and which may still have something in the cluster
    capacity.json   what the cluster reported last
    mirror.log      what the mirror process has to say

A service that starts again finds all of it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pai_sdk.base.files import is_locked, publish_once, replace_file

__all__ = ["Hub"]

_CAPACITY_LIFE_S = 60.0


class Hub:
    """The folder.

    Args:
        path: the folder, which is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.log = path / "mirror.log"
        self._alone = path / "alone"
        self._active = path / "active"
        self._removed = path / "removed"
        for folder in (path, self._active, self._removed):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def namespace(self) -> str:
        """The name of this service in the cluster."""
        file = self.path / "namespace"
        publish_once(file, secrets.token_hex(6))
        return file.read_text()

    @property
    def has_mirror(self) -> bool:
        """Return whether a mirror process is at work."""
        return is_locked(self.lock)

    def leave_alone(self) -> None:
        """Note that the service of the mirror process has ended."""
        self._alone.touch()

    def relieve(self) -> None:
        """Let a mirror process that is alone end, for one with a service."""
        self._alone.unlink(missing_ok=True)

    @property
    def is_alone(self) -> bool:
        """Return whether the mirror process is alone, and nothing has relieved it."""
        return self._alone.exists()

    # ---- jobs ----

    def add(self, job_id: str, root: Path) -> None:
        """Note a job before its start."""
        replace_file(self._active / job_id, str(root))

    def drop(self, job_id: str) -> None:
        """Forget a job: it has ended, or never began."""
        (self._active / job_id).unlink(missing_ok=True)

    def remove(self, job_id: str) -> None:
        """Ask for the end of a job whose folder has gone."""
        with suppress(FileNotFoundError):
            (self._active / job_id).rename(self._removed / job_id)

    def has(self, job_id: str) -> bool:
        """Return whether a job was started here and has not ended."""
        return (self._active / job_id).exists()

    def active(self) -> dict[str, Path]:
        """The jobs that were started, with their folders."""
        found = {}
        for file in self._active.iterdir():
            with suppress(FileNotFoundError):
                if not file.name.startswith("."):
                    found[file.name] = Path(file.read_text())
        return found

    def removed(self) -> list[str]:
        """The jobs whose end was asked for."""
        return [file.name for file in self._removed.iterdir()]

    def forget_removed(self, job_id: str) -> None:
        """The cluster has nothing of a job any more."""
        (self._removed / job_id).unlink(missing_ok=True)

    # ---- the cluster ----

    def write_capacity(self, found: Mapping[str, float]) -> None:
        """Note what the cluster has."""
        replace_file(self.path / "capacity.json", json.dumps(found))

    @property
    def knows_cluster(self) -> bool:
        """Return whether a mirror process was connected, now or earlier."""
        return (self.path / "capacity.json").exists()

    def capacity(self) -> dict[str, float] | None:
        """What the cluster reported last; None if that is long ago."""
        file = self.path / "capacity.json"
        try:
            if time.time() - file.stat().st_mtime > _CAPACITY_LIFE_S:
                return None
            found: dict[str, float] = json.loads(file.read_text())
        except (OSError, ValueError):
            return None
        return found
