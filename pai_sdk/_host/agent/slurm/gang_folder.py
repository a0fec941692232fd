"""The folder through which the instances of a job on several hosts, and its executor, communicate.

It is on a file system that all of them share. Every file in it appears with its full content:

    claim          the first start of the job, which runs it; or the reason why no start runs it
    ending         why the job does not succeed; the first one stays
    complete       all instances have succeeded that the job waits for; the others are to end
    kill           end at once, without a grace period: the job is being removed
    ports-HOST     the address of a host, and free ports there for each instance on it
    beat           touched while the process is alive that has started the instances
    tunnel-N-ID    a request that the instance of rank N connects to the service for a tunnel; with `.failed` at
                   its end, why it could not
    INSTANCE/      the `Sandbox` of one instance; `ml`, `mounts` and `logs` are links to those of the job
    INSTANCE/beat  touched while the process is alive that watches the instance
    INSTANCE/told  Slurm has sent SIGTERM to it

Standard library only.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pai_sdk._core.files import open_plain, publish_once
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import Ending, ExecutionState
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.tunnel.on_demand import SOCKET

BEAT_INTERVAL_S = 2.0
# Six beats, because some file systems show the times of files late.
_DEAD_AFTER_S = 12.0
_CLAIM = "claim"
_ENDING = "ending"
_KILL = "kill"
_COMPLETE = "complete"
_BEAT = "beat"
_SIGTERM_SENT = "told"
_CLOCK = "clock"
_PORTS = "ports-"
_TUNNEL, _FAILED = "tunnel-", ".failed"


@dataclass(frozen=True)
class Claim:
    """The right to run a job, which is granted once."""

    slurm_job_id: str = ""  # the Slurm job whose start claimed it
    restarts: int = 0  # how often Slurm had started that job before
    host: str = ""  # of that start
    ending: Ending | None = None  # why no start may run the job; then all others are empty


@dataclass(frozen=True)
class HostPorts:
    """The address of a host that has instances."""

    host: str
    address: str  # by which other hosts reach it
    master_port: int  # for the instance of rank 0; 0 where that is elsewhere
    ports: dict[int, int]  # rank to port, for each instance on this host


class Signs(NamedTuple):
    """What concerns all instances of a job: they are to be killed, it has an ending, it is complete."""

    must_be_killed: bool
    has_ending: bool
    is_complete: bool
    tunnel_requests: frozenset[str] = frozenset()  # the names of their files


class GangFolder:
    """Reads and writes the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # ---- the claim ----

    def try_claim(self, claim: Claim) -> bool:
        """Claims the job, to run it or to prevent it; returns False if it was claimed before."""
        # Before the claim, so that a second start that reads it also sees a sign of life.
        (self.path / _BEAT).touch(mode=0o600)
        return publish_once(self.path / _CLAIM, json.dumps(asdict(claim)))

    @property
    def claim(self) -> Claim | None:
        """Returns the claim of the job, or None."""
        content = self._json(_CLAIM)
        if content is None:
            return None
        return Claim(**{**content, "ending": Ending(**content["ending"]) if content["ending"] else None})

    # ---- the end ----

    def write_ending(self, ending: Ending) -> None:
        """Records why the job does not succeed, which ends all its instances; the first one stays."""
        publish_once(self.path / _ENDING, json.dumps(asdict(ending)))

    @property
    def ending(self) -> Ending | None:
        """Returns why the job does not succeed, or None."""
        content = self._json(_ENDING)
        return None if content is None else Ending(**content)

    def kill(self) -> None:
        """Requests that all instances are killed."""
        publish_once(self.path / _KILL, "")

    def write_complete(self) -> None:
        """Records that all instances have succeeded that the job waits for, which ends the others."""
        publish_once(self.path / _COMPLETE, "")

    def signs(self) -> Signs:
        """Returns which of the files exist that concern all instances."""
        # Lists the folder instead of a look-up of each name: a network file system may cache for half a minute
        # that a name does not exist.
        names = {path.name for path in self.path.iterdir()}
        requests = (name for name in names if name.startswith(_TUNNEL) and not name.endswith(_FAILED))
        return Signs(_KILL in names, _ENDING in names, _COMPLETE in names, frozenset(requests))

    # ---- tunnels ----

    def request_tunnel(self, rank: int, request: Mapping[str, Any]) -> str:
        """Requests that an instance connects to the service; returns the name of the request."""
        name = f"{_TUNNEL}{rank}-{secrets.token_hex(8)}"
        publish_once(self.path / name, json.dumps(request))
        return name

    def take_tunnel_request(self, name: str, rank: int) -> dict[str, Any] | None:
        """Returns a request and removes it; None if it is for another instance, or was withdrawn."""
        if not name.startswith(f"{_TUNNEL}{rank}-"):
            return None
        try:
            return self._json(name)
        finally:
            (self.path / name).unlink(missing_ok=True)

    def refuse_tunnel(self, name: str, refusal: Mapping[str, str]) -> None:
        """Records why an instance could not connect to the service."""
        publish_once(self.path / f"{name}{_FAILED}", json.dumps(refusal))

    def tunnel_refusal(self, name: str) -> dict[str, str] | None:
        """Returns why an instance could not connect, or None."""
        file = f"{name}{_FAILED}"
        return self._json(file) if any(path.name == file for path in self.path.iterdir()) else None

    def withdraw_tunnel_request(self, name: str) -> None:
        """Removes a request and its refusal."""
        for file in (name, f"{name}{_FAILED}"):
            (self.path / file).unlink(missing_ok=True)

    def has_tunnels(self, instance: str) -> bool:
        """Returns whether the supervisor of a running instance listens; one of an earlier release does not."""
        state = self.state(instance)
        listens = SOCKET in (path.name for path in self.sandbox(instance).state_dir.iterdir())
        return state is None or state.phase != "running" or listens

    # ---- where the instances are ----

    def write_ports(self, host_ports: HostPorts) -> None:
        """Publishes the address of this host."""
        publish_once(self.path / f"{_PORTS}{host_ports.host}", json.dumps(asdict(host_ports)))

    def ports(self) -> list[HostPorts]:
        """Returns the hosts that have published their address."""
        names = [path.name for path in self.path.iterdir() if path.name.startswith(_PORTS)]
        entries = [entry for name in names if (entry := self._json(name)) is not None]
        return [
            HostPorts(**{**entry, "ports": {int(rank): port for rank, port in entry["ports"].items()}})
            for entry in entries
        ]

    # ---- instances ----

    def sandbox(self, instance: str) -> Sandbox:
        """Returns the folder of an instance."""
        return Sandbox(self.path / instance)

    def make_sandbox(self, instance: str, job: Sandbox) -> Sandbox:
        """Creates the folder of an instance, which uses `ml` and `logs` of the job."""
        sandbox = self.sandbox(instance)
        sandbox.state_dir.mkdir(parents=True, exist_ok=True)
        links = (
            (sandbox.ml, job.ml),
            (sandbox.mounts_dir, job.mounts_dir),
            (sandbox.logs_dir, job.logs_dir),
        )
        for link, target in links:
            with suppress(FileExistsError):
                link.symlink_to(target)
        (sandbox.root / _BEAT).touch(mode=0o600)
        return sandbox

    def state(self, instance: str) -> ExecutionState | None:
        """Returns the state that the supervisor of an instance has written; None before its start."""
        return Journal(self.sandbox(instance).state_dir).read_state()

    # ---- signs of life ----

    def beat(self, instance: str = "") -> None:
        """Writes a sign of life, for an instance or for the process that has started all of them."""
        # The job is being removed.
        with suppress(FileNotFoundError):
            os.utime(self.path / instance / _BEAT)

    def is_alive(self, instance: str = "") -> bool:
        """Returns True if there was a recent sign of life, by the clock of the file system."""
        try:
            now, beat = self._now(), _modified_at(self.path / instance / _BEAT)
        except FileNotFoundError:
            return False
        return now - beat < _DEAD_AFTER_S

    def has_outlived_ending(self, instance: str) -> bool:
        """Returns True if an instance gave a sign of life after another one had recorded why the job ends."""
        try:
            beat, ending = _modified_at(self.path / instance / _BEAT), _modified_at(self.path / _ENDING)
        except FileNotFoundError:
            return False
        # Network file systems may round times.
        return beat - ending > BEAT_INTERVAL_S

    def record_sigterm(self, instance: str) -> None:
        """Records that Slurm has sent SIGTERM to an instance."""
        publish_once(self.path / instance / _SIGTERM_SENT, "")

    def has_sigterm(self, instances: Iterable[str]) -> bool:
        """Returns True if Slurm has sent SIGTERM to one of these instances."""
        return any((self.path / instance / _SIGTERM_SENT).exists() for instance in instances)

    def _now(self) -> float:
        # The clock of the file server: the hosts' clocks may differ from it and from each other.
        clock = self.path / _CLOCK
        clock.touch(mode=0o600)
        return _modified_at(clock)

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            with open_plain(self.path / name) as file:
                content: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        return content


def _modified_at(path: Path) -> float:
    # Opened, because a network file system then revalidates its cache.
    with open_plain(path) as file:
        return os.fstat(file.fileno()).st_mtime
