"""The root of a job's processes: its `/ml`, its mounts, and the names of its instances. Standard library only."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from pai_sdk._host.agent import mlroot
from pai_sdk._host.agent.sandbox import Sandbox

_HOSTS = Path("/etc/hosts")
_LOOPBACK = "127.0.0.1"


class JobRoot:
    """Moves a process into the root that the description of a job needs."""

    def __init__(self, sandbox: Sandbox, job: dict[str, Any]) -> None:
        self._sandbox = sandbox
        self._hidden_by_ml = str(job.get("hidden_by_ml") or "")
        self._mounts: list[dict[str, Any]] = job.get("mounts") or []
        # Missing in jobs of a service of an earlier release.
        self.names: list[str] = job.get("hosts") or []
        self._rendezvous: dict[str, Any] = job.get("rendezvous") or {}

    @property
    def has_mounts(self) -> bool:
        """Returns whether the job needs folders that only a namespace can give it."""
        return bool(self._mounts)

    def enter(self) -> None:
        """Moves this process, which must have one thread only, into the root."""
        mlroot.enter(self._sandbox.ml, self._mount_point, read_only=("input",), binds=self._binds)

    def refusal(self) -> str:
        """Returns why processes cannot enter the root; empty if they can."""
        if self._hidden_by_ml:
            return f"{self._hidden_by_ml} lies in this machine's own /ml, and would be hidden"
        try:
            self._mount_point.mkdir(exist_ok=True)
            return mlroot.refusal(self._sandbox.ml, self._mount_point, read_only=("input",), binds=self._binds)
        except OSError as error:
            return str(error)

    @cached_property
    def _binds(self) -> list[mlroot.Bind]:
        binds = [
            mlroot.Bind(self._sandbox.mount_dir(number), mount["path"], mount["access"] == "RO")
            for number, mount in enumerate(self._mounts)
        ]
        if self.names and _HOSTS.exists():
            binds.append(mlroot.Bind(self._write_hosts(), str(_HOSTS), is_read_only=True))
        return binds

    def _write_hosts(self) -> Path:
        """Writes the host's own names and those of the instances; returns the file."""
        addresses = [worker.rpartition(":")[0] for worker in self._rendezvous.get("workers", ())]
        addresses = addresses or [_LOOPBACK] * len(self.names)
        # After the host's own lines: an address keeps its first name.
        lines = [f"{address} {name}\n" for address, name in zip(addresses, self.names, strict=True)]
        file = self._sandbox.state_dir / "hosts"
        file.write_text(
            _HOSTS.read_text(errors="surrogateescape").rstrip("\n") + "\n" + "".join(lines),
            errors="surrogateescape",
        )
        return file

    @property
    def _mount_point(self) -> Path:
        return self._sandbox.state_dir / "mount"
