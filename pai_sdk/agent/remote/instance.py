"""One instance of a job on a host of a cluster: its folder, its supervisor, and what the service asks about it.

    base/SERVICE/NODE/JOB/lock       held, shared, by the processes of all instances of the job on this node
    base/SERVICE/NODE/JOB/ml/        what all of them see as `/ml`
    base/SERVICE/NODE/JOB/received   the outputs as they were sent here; `ml` is complete when it exists
    base/SERVICE/NODE/JOB/INSTANCE/  `Sandbox` of one instance: its log, its state, a link to `ml`
    base/cache/                      environments with requirements

Arguments and results are plain values, so any way to call a process on another host will do. All methods may be
called again after a caller was cut off. When the process ends that has the object, the instance is killed.
Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk.agent.distributed import free_ports
from pai_sdk.agent.journal import Journal
from pai_sdk.agent.protocol import ExecutionState
from pai_sdk.agent.remote.file_parts import PART_BYTES, Entry, FileFacts, files_in, unpack
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.agent.supervising import job_on_host, start_supervisor
from pai_sdk.base.files import open_plain, replace_file, take_lock

__all__ = ["HostedInstance"]

_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 15.0
_LOOK_EVERY_S = 0.05


class HostedInstance:
    """An instance that this process is responsible for.

    Args:
        base: a folder of this user on the host, for all jobs.
        package: the folder that contains the package `pai_sdk`.
        service: the service that the job belongs to.
        node: the node; a host may have several.
        job_id: the job.
        name: the instance.
    """

    def __init__(self, base: Path, package: Path, service: str, node: str, job_id: str, name: str) -> None:
        self._base = _private_folder(base)
        self._package = package
        service_dir = _private_folder(self._base / service)
        _remove_leftovers(service_dir)
        self._job_dir = _private_folder(service_dir / node) / job_id
        self._lock = _hold(self._job_dir)
        self._ml = self._job_dir / "ml"
        self._received = self._job_dir / "received"
        self._sandbox = Sandbox(self._job_dir / name)
        self._journal = Journal(self._sandbox.state_dir)
        for folder in (self._ml, self._sandbox.logs_dir, self._sandbox.state_dir):
            folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self._sandbox.ml.symlink_to(self._ml)
        self._lifeline: int | None = None
        self._beginning = threading.Lock()

    # ---- before the instance begins ----

    def is_filled(self) -> bool:
        """Return whether all files of the job are here; where not, what is here is removed, to be sent again."""
        if self._received.exists():
            return True
        shutil.rmtree(self._ml)
        self._ml.mkdir()
        return False

    def receive(self, part: Sequence[Entry]) -> None:
        """Write files of the job; see `file_parts`."""
        unpack(part, self._ml)

    def filled(self) -> None:
        """All files were sent."""
        replace_file(self._received, json.dumps(files_in(self._ml / "output")))

    def free_ports(self, count: int) -> list[int]:
        """Free ports, for the variables by which the instances find each other."""
        return free_ports(count, address="")

    def begin(self, facts: dict[str, Any]) -> None:
        """Start the supervisor; nothing where it was started before.

        Args:
            facts: from `execution.contract.job_description`, with this instance only, and `logs_at`: how many
                bytes of its log and of the notes of its times earlier attempts have written.
        """
        with self._beginning:
            if self._journal.read_state() is not None:
                return
            self._continue_logs(facts["logs_at"])
            self._journal.write_job(job_on_host(self._sandbox, facts, cache_dir=self._base / "cache"))
            reader, self._lifeline = os.pipe()
            try:
                start_supervisor(
                    self._sandbox.root, package=self._package, timeout_s=_START_TIMEOUT_S, lifeline=reader
                )
            finally:
                os.close(reader)

    def _continue_logs(self, sizes: Sequence[int]) -> None:
        """Let the log, and the notes of its times, begin behind what earlier attempts have written elsewhere.

        The files get a hole of that size, which takes no space: so every offset is that of the whole log.
        """
        name = self._sandbox.root.name
        for file, size_bytes in zip(
            (self._sandbox.log_file(name), self._sandbox.times_file(name)), sizes, strict=True
        ):
            if size_bytes:
                with file.open("ab") as stream:
                    stream.truncate(max(size_bytes, stream.tell()))

    # ---- while it runs ----

    def look(self, log_at: int, times_at: int, seen_state: str, wait_s: float) -> dict[str, Any]:
        """Wait for news: another state, or more of the log.

        Args:
            log_at: how many bytes of the log the caller has.
            times_at: how many bytes of the notes of its times.
            seen_state: the state that it knows.
            wait_s: how long to wait.

        Returns:
            `state` as JSON, `log` and `times` from there on, and `is_all`: nothing more will come.
        """
        name, deadline = self._sandbox.root.name, time.monotonic() + wait_s
        log, times = self._sandbox.log_file(name), self._sandbox.times_file(name)
        while True:
            text = self.state()
            has_ended = bool(text) and ExecutionState.parse(text).phase == "ended"  # its log is complete now
            noted = _read(times, times_at, PART_BYTES)  # before the log, so that it has all that they speak of
            new = _read(log, log_at, PART_BYTES)
            text = self.state()  # no older than the log: who reads what it has printed finds it running
            if text != seen_state or new or has_ended or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_EVERY_S)
        is_whole = len(new) < PART_BYTES
        return {
            "state": text,
            "log": new,
            "times": noted if is_whole else b"",
            "is_all": has_ended and is_whole and len(noted) < PART_BYTES,
        }

    def state(self) -> str:
        """The state of its supervisor as JSON; empty before it has begun."""
        found = self._journal.state()
        return "" if found is None else found.to_json()

    def stop(self, reason_code: str, reason_message: str) -> None:
        """Ask the instance to end."""
        self._journal.request_stop(reason_code, reason_message)

    # ---- what it has written ----

    def outputs(self, channels: Sequence[str] | None = None) -> tuple[dict[str, FileFacts], list[str]]:
        """The files in output channels that the job has written or changed, and those that it has removed.

        Args:
            channels: only these.
        """
        found = files_in(self._ml / "output")
        sent: dict[str, FileFacts] = json.loads(self._received.read_text())

        def is_wanted(path: str) -> bool:
            return channels is None or path.partition("/")[0] in channels

        changed = {path: facts for path, facts in found.items() if facts != sent.get(path) and is_wanted(path)}
        gone = [path for path, facts in sent.items() if path not in found and is_wanted(path)]
        return changed, [path for path in gone if sent[path] != ["folder"]]

    def read_output(self, path: str, at: int) -> bytes:
        """At most `PART_BYTES` of an output file."""
        with open_plain(self._ml / "output" / path) as file:
            file.seek(at)
            return file.read(PART_BYTES)

    # ---- its end ----

    def end(self) -> None:
        """Kill what still runs, and remove the instance's folder; with the last instance here, the job's."""
        with self._beginning:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None
        deadline = time.monotonic() + _END_TIMEOUT_S
        while self._journal.is_locked() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        shutil.rmtree(self._sandbox.root, ignore_errors=True)
        os.close(self._lock)
        _remove_unused(self._job_dir)


def _private_folder(folder: Path) -> Path:
    """Make a folder that others cannot look into.

    Raises:
        PermissionError: it belongs to another user.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is no folder of this user")
    folder.chmod(0o700)
    return folder


def _hold(job_dir: Path) -> int:
    """Lock a job's folder, which is made, against `_remove_unused`."""
    while True:
        job_dir.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):  # it was just removed
            lock = os.open(job_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            take_lock(lock, shared=True)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), (job_dir / "lock").stat()):
                    return lock
            os.close(lock)


def _remove_leftovers(service_dir: Path) -> None:
    """Remove folders of jobs whose processes were killed before they could."""
    for job_dir in service_dir.glob("*/*"):
        _remove_unused(job_dir)


def _remove_unused(job_dir: Path) -> None:
    """Remove a job's folder, unless a process of it is alive."""
    with suppress(FileNotFoundError):
        lock = os.open(job_dir / "lock", os.O_RDWR)
        try:
            if take_lock(lock, waits=False):
                shutil.rmtree(job_dir, ignore_errors=True)
        finally:
            os.close(lock)


def _read(path: Path, at: int, most_bytes: int) -> bytes:
    try:
        with open_plain(path) as file:
            file.seek(at)
            return file.read(most_bytes)
    except FileNotFoundError:
        return b""
