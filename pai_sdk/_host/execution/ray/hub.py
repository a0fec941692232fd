"""The folder by which the executor and its mirror process communicate; standard library only.

    namespace       the name of this service in the cluster
    lock            held by the mirror process
    alone           the service of the mirror process has ended, and the mirror continues with its jobs
    active/JOB      a job that was started and has not ended: the path of its folder
    removed/JOB     a job whose folder is gone, and which may still have resources in the cluster
    tunnels/ID      a request that an instance connects to the service; `ID.failed`: why it could not
    capacity.json   the capacity that the cluster reported last
    mirror.log      the log of the mirror process

A restarted service finds all of it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk._core.files import is_locked, publish_once, replace_file

_CAPACITY_LIFE_S = 60.0


class Hub:
    """Reads and writes the folder, which is created if it does not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.log = path / "mirror.log"
        self._alone = path / "alone"
        self._active = path / "active"
        self._removed = path / "removed"
        self._tunnels = path / "tunnels"
        for folder in (path, self._active, self._removed, self._tunnels):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def namespace(self) -> str:
        """Returns the name of this service in the cluster."""
        file = self.path / "namespace"
        # Several processes may create it at once; the first name stays.
        publish_once(file, secrets.token_hex(6))
        return file.read_text()

    @property
    def has_mirror(self) -> bool:
        """Returns whether a mirror process is running."""
        return is_locked(self.lock)

    def mark_orphaned(self) -> None:
        """Records that the service of the mirror process has ended."""
        self._alone.touch()

    def clear_orphaned(self) -> None:
        """Lets an orphaned mirror process exit, so that one with a service replaces it."""
        self._alone.unlink(missing_ok=True)

    @property
    def is_orphaned(self) -> bool:
        """Returns whether the mirror process has no service and no other service replaces it."""
        return self._alone.exists()

    # ---- jobs ----

    def add(self, job_id: str, root: Path) -> None:
        """Records a job before its start."""
        replace_file(self._active / job_id, str(root))

    def drop(self, job_id: str) -> None:
        """Removes a job that has ended or never started."""
        (self._active / job_id).unlink(missing_ok=True)

    def remove(self, job_id: str) -> None:
        """Requests the end of a job whose folder is gone."""
        with suppress(FileNotFoundError):
            # A rename, so that a kill in between loses neither entry.
            (self._active / job_id).rename(self._removed / job_id)

    def has(self, job_id: str) -> bool:
        """Returns whether a job was started by this service and has not ended."""
        return (self._active / job_id).exists()

    def active(self) -> dict[str, Path]:
        """Returns the started jobs with their folders."""
        roots = {}
        for file in self._active.iterdir():
            # A job may be dropped between the listing and the read; names with a dot are drafts of `replace_file`.
            with suppress(FileNotFoundError):
                if not file.name.startswith("."):
                    roots[file.name] = Path(file.read_text())
        return roots

    def removed(self) -> list[str]:
        """Returns the jobs whose end was requested."""
        return [file.name for file in self._removed.iterdir()]

    def forget_removed(self, job_id: str) -> None:
        """Forgets a removed job: the cluster has released its resources."""
        (self._removed / job_id).unlink(missing_ok=True)

    # ---- tunnels ----

    def request_tunnel(self, instance: str, request: Mapping[str, Any]) -> str:
        """Requests that an instance connects to the service; returns the name of the request."""
        name = secrets.token_hex(8)
        publish_once(self._tunnels / name, json.dumps({**request, "instance": instance}))
        return name

    def take_tunnel_requests(self) -> dict[str, dict[str, Any]]:
        """Returns the requests by their names, without expired ones, and removes them."""
        requests = {}
        for file in self._tunnels.iterdir():
            # Names with a dot are refusals and drafts; a request may be withdrawn meanwhile.
            if "." not in file.name:
                with suppress(FileNotFoundError):
                    content = json.loads(file.read_text())
                    file.unlink()
                    if time.time() < content["expires_at"]:
                        requests[file.name] = content
        return requests

    def refuse_tunnel(self, name: str, refusal: Mapping[str, str]) -> None:
        """Records why an instance could not connect to the service."""
        publish_once(self._tunnels / f"{name}.failed", json.dumps(refusal))

    def tunnel_refusal(self, name: str) -> dict[str, str] | None:
        """Returns why an instance could not connect, or None."""
        try:
            refusal: dict[str, str] = json.loads((self._tunnels / f"{name}.failed").read_text())
        except FileNotFoundError:
            return None
        return refusal

    def withdraw_tunnel_request(self, name: str) -> None:
        """Removes a request and its refusal."""
        for file in (name, f"{name}.failed"):
            (self._tunnels / file).unlink(missing_ok=True)

    # ---- the cluster ----

    def write_capacity(self, capacity: Mapping[str, float]) -> None:
        """Writes the capacity of the cluster."""
        replace_file(self.path / "capacity.json", json.dumps(capacity))

    @property
    def was_connected(self) -> bool:
        """Returns whether a mirror process has ever been connected."""
        return (self.path / "capacity.json").exists()

    def capacity(self) -> dict[str, float] | None:
        """Returns the last reported capacity; None if it is older than a minute."""
        file = self.path / "capacity.json"
        try:
            # A mirror without a connection does not update the file.
            if time.time() - file.stat().st_mtime > _CAPACITY_LIFE_S:
                return None
            capacity: dict[str, float] = json.loads(file.read_text())
        except (OSError, ValueError):
            return None
        return capacity
