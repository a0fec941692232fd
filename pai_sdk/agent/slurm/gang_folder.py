"""The folder by which the instances of a job on several hosts, and its executor, know of each other.

It is on a file system that all of them share. Every file in it appears with all of its content:

    claim          what may run the job: the first start of it; or nothing, since the executor has ended it before
    ending         why the job does not succeed; the first one stays
    kill           end at once, without a grace period: the job is being removed
    ports-HOST     the address of a host, and free ports there for each instance on it
    beat           touched while the process lives that has started the instances
    INSTANCE/      the `Sandbox` of one instance; its `ml` and `logs` are links to those of the job
    INSTANCE/beat  touched while the process lives that watches over the instance
    INSTANCE/told  Slurm has sent SIGTERM to it

Standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pai_sdk.agent.journal import Journal
from pai_sdk.agent.protocol import Ending, ExecutionState
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.base.files import open_plain, publish_once

__all__ = ["BEAT_EVERY_S", "Claim", "GangFolder", "HostPorts"]

BEAT_EVERY_S = 2.0
_DEAD_AFTER_S = 12.0  # also where a file system shows the times of files late
_CLAIM = "claim"
_ENDING = "ending"
_KILL = "kill"
_BEAT = "beat"
_TOLD = "told"
_CLOCK = "clock"
_PORTS = "ports-"


@dataclass(frozen=True)
class Claim:
    """The right to run a job, which is given once.

    Attributes:
        slurm_job_id: the Slurm job whose start took it.
        restarts: how often Slurm had started that job before.
        host: where.
        ending: why no start may run the job; then all others are empty.
    """

    slurm_job_id: str = ""
    restarts: int = 0
    host: str = ""
    ending: Ending | None = None


@dataclass(frozen=True)
class HostPorts:
    """The address of a host that has instances.

    Attributes:
        host: its name.
        address: by which other hosts reach it.
        master_port: for the instance of rank 0; 0 where that is elsewhere.
        ports: rank to a port for each instance on this host.
    """

    host: str
    address: str
    master_port: int
    ports: dict[int, int]


class GangFolder:
    """Reads and writes the folder.

    Attributes:
        path: the folder.

    Example:
        >>> GangFolder(Path("/srv/jobs/train1/shared")).claim is None
        True
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    # ---- the claim ----

    def take(self, claim: Claim) -> bool:
        """Take the right to run the job, or to say that it does not run; false when it was given before."""
        (self.path / _BEAT).touch(mode=0o600)  # so that a start which comes second finds a sign of life
        return publish_once(self.path / _CLAIM, json.dumps(asdict(claim)))

    @property
    def claim(self) -> Claim | None:
        """Who has the right to run the job."""
        found = self._json(_CLAIM)
        if found is None:
            return None
        return Claim(**{**found, "ending": Ending(**found["ending"]) if found["ending"] else None})

    # ---- the end ----

    def write_ending(self, ending: Ending) -> None:
        """Say why the job does not succeed, which ends all its instances; the first one stays."""
        publish_once(self.path / _ENDING, json.dumps(asdict(ending)))

    @property
    def ending(self) -> Ending | None:
        """Why the job does not succeed."""
        found = self._json(_ENDING)
        return None if found is None else Ending(**found)

    def kill(self) -> None:
        """Have all instances killed."""
        publish_once(self.path / _KILL, "")

    def signs(self) -> tuple[bool, bool]:
        """Return whether the instances are to be killed, and whether there is an ending.

        The folder is read, and not each name looked up: a file system of a network may remember for half a minute
        that a name was not there.
        """
        names = {path.name for path in self.path.iterdir()}
        return _KILL in names, _ENDING in names

    # ---- where the instances are ----

    def write_ports(self, found: HostPorts) -> None:
        """Tell the other hosts the address of this one."""
        publish_once(self.path / f"{_PORTS}{found.host}", json.dumps(asdict(found)))

    def ports(self) -> list[HostPorts]:
        """The hosts that have told their address."""
        names = [path.name for path in self.path.iterdir() if path.name.startswith(_PORTS)]
        found = [one for name in names if (one := self._json(name)) is not None]
        return [
            HostPorts(**{**one, "ports": {int(rank): port for rank, port in one["ports"].items()}})
            for one in found
        ]

    # ---- instances ----

    def sandbox(self, instance: str) -> Sandbox:
        """The folder of an instance."""
        return Sandbox(self.path / instance)

    def make_sandbox(self, instance: str, job: Sandbox) -> Sandbox:
        """Make the folder of an instance, which uses `ml` and `logs` of the job."""
        sandbox = self.sandbox(instance)
        sandbox.state_dir.mkdir(parents=True, exist_ok=True)
        for link, target in ((sandbox.ml, job.ml), (sandbox.logs_dir, job.logs_dir)):
            with suppress(FileExistsError):
                link.symlink_to(target)
        (sandbox.root / _BEAT).touch(mode=0o600)
        return sandbox

    def state(self, instance: str) -> ExecutionState | None:
        """The state of an instance, as its supervisor has written it; None before it has begun."""
        return Journal(self.sandbox(instance).state_dir).read_state()

    # ---- signs of life ----

    def beat(self, instance: str = "") -> None:
        """Give a sign of life, for an instance or for what has started all of them."""
        with suppress(FileNotFoundError):  # the job is being removed
            os.utime(self.path / instance / _BEAT)

    def is_alive(self, instance: str = "") -> bool:
        """Return whether there was a sign of life lately, by the clock of the file system."""
        try:
            now, beat = self._now(), _modified_at(self.path / instance / _BEAT)
        except FileNotFoundError:
            return False
        return now - beat < _DEAD_AFTER_S

    def has_outlived_ending(self, instance: str) -> bool:
        """Return whether an instance gave a sign of life after another one had written why the job ends."""
        try:
            beat, ending = _modified_at(self.path / instance / _BEAT), _modified_at(self.path / _ENDING)
        except FileNotFoundError:
            return False
        return beat - ending > BEAT_EVERY_S  # a file system of a network may round its times

    def write_told(self, instance: str) -> None:
        """Note that Slurm wants an instance to end."""
        publish_once(self.path / instance / _TOLD, "")

    def is_told(self, instances: Iterable[str]) -> bool:
        """Return whether Slurm has told one of these instances to end."""
        return any((self.path / instance / _TOLD).exists() for instance in instances)

    def _now(self) -> float:
        clock = self.path / _CLOCK
        clock.touch(mode=0o600)
        return _modified_at(clock)

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            with open_plain(self.path / name) as file:
                found: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        return found


def _modified_at(path: Path) -> float:
    with open_plain(path) as file:  # opened, because then a file system of a network looks anew
        return os.fstat(file.fileno()).st_mtime
