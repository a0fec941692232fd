"""One instance of a job on a host of a cluster: its folder, its supervisor, and the calls of the service.

    base/SERVICE/NODE/JOB/lock       held, shared, by the processes of all instances of the job on this node
    base/SERVICE/NODE/JOB/ml/        what all of them see as `/ml`
    base/SERVICE/NODE/JOB/mounts/N   what all of them see at the path of mount N
    base/SERVICE/NODE/JOB/received   the outputs as they were sent; `ml` is complete when it exists
    base/SERVICE/NODE/JOB/received-N the files of mount N as they were sent
    base/SERVICE/NODE/JOB/INSTANCE/  `Sandbox` of one instance: its log, its state, links to `ml` and `mounts`
    base/cache/                      environments with requirements

Arguments and results are plain values, so any way to call a process on another host works. A process of an earlier
release may have the object, and callers name methods by string, so method names never change. All methods can be
called again after a caller was interrupted. When the process with the object exits, the instance is killed.
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

from pai_sdk._core.files import open_plain, replace_file, take_lock
from pai_sdk._host.agent.distributed import free_ports
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionState
from pai_sdk._host.agent.remote.file_parts import PART_BYTES, Entry, FileInfo, files_in, unpack
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.supervising import job_on_host, start_supervisor
from pai_sdk._host.agent.tunnel.dialing_out import dial_out

_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 15.0
_POLL_INTERVAL_S = 0.05


class HostedInstance:
    """An instance that this process is responsible for."""

    def __init__(self, base: Path, package: Path, service: str, node: str, job_id: str, name: str) -> None:
        # A folder of this user on the host, for all jobs.
        self._base = _private_folder(base)
        # The folder that contains the package `pai_sdk`.
        self._package = package
        service_dir = _private_folder(self._base / service)
        _remove_leftovers(service_dir)
        self._job_dir = _private_folder(service_dir / node) / job_id
        self._lock = _lock_folder(self._job_dir)
        self._ml = self._job_dir / "ml"
        self._received = self._job_dir / "received"
        self._sandbox = Sandbox(self._job_dir / name)
        self._journal = Journal(self._sandbox.state_dir)
        self._mounts = self._job_dir / "mounts"
        for folder in (self._ml, self._mounts, self._sandbox.logs_dir, self._sandbox.state_dir):
            folder.mkdir(parents=True, exist_ok=True)
        for link, target in ((self._sandbox.ml, self._ml), (self._sandbox.mounts_dir, self._mounts)):
            with suppress(FileExistsError):
                link.symlink_to(target)
        self._lifeline: int | None = None
        self._start_lock = threading.Lock()

    # ---- before the instance begins ----

    def is_filled(self) -> bool:
        """Returns True if all files of the job have arrived; otherwise removes those present, to be sent again."""
        if self._received.exists():
            return True
        for folder in (self._ml, self._mounts):
            shutil.rmtree(folder)
            folder.mkdir()
        return False

    def receive(self, part: Sequence[Entry], mount: int | None = None) -> None:
        """Writes files of the job, or of one of its mounts; see `file_parts`."""
        folder = self._ml if mount is None else self._mounts / str(mount)
        folder.mkdir(exist_ok=True)
        unpack(part, folder)

    def filled(self, mounts: int = 0) -> None:
        """Records that all files were sent, and those of this number of mounts."""
        for mount in range(mounts):
            (self._mounts / str(mount)).mkdir(exist_ok=True)
            replace_file(self._received_file(mount), json.dumps(files_in(self._mounts / str(mount))))
        replace_file(self._received, json.dumps(files_in(self._ml / "output")))

    def _received_file(self, mount: int | None) -> Path:
        return self._received if mount is None else self._received.with_name(f"received-{mount}")

    def free_ports(self, count: int) -> list[int]:
        """Returns free ports, for the variables by which the instances find each other."""
        return free_ports(count, address="")

    def begin(self, job: dict[str, Any]) -> None:
        """Starts the supervisor, unless it was started before."""
        with self._start_lock:
            if self._journal.read_state() is not None:
                return
            # How many bytes of the log and of the samples of its sizes earlier attempts have written.
            self._continue_logs(job["logs_at"])
            self._journal.write_job(job_on_host(self._sandbox, job, cache_dir=self._base / "cache"))
            reader, self._lifeline = os.pipe()
            try:
                start_supervisor(
                    self._sandbox.root, package=self._package, timeout_s=_START_TIMEOUT_S, lifeline=reader
                )
            finally:
                # The supervisor has its own copy; the writing end, `_lifeline`, closes with this process.
                os.close(reader)

    def _continue_logs(self, sizes: Sequence[int]) -> None:
        """Makes the log, and the samples of its sizes, start after the output of earlier attempts elsewhere."""
        # The files get a hole of that size, which takes no space: so every offset is that of the complete log.
        name = self._sandbox.root.name
        for file, size_bytes in zip(
            (self._sandbox.log_file(name), self._sandbox.times_file(name)), sizes, strict=True
        ):
            if size_bytes:
                with file.open("ab") as stream:
                    stream.truncate(max(size_bytes, stream.tell()))

    # ---- while it runs ----

    def look(self, log_at: int, times_at: int, last_state: str, wait_s: float) -> dict[str, Any]:
        """Waits for another state, or for more of the log than the bytes that the caller has."""
        name, deadline = self._sandbox.root.name, time.monotonic() + wait_s
        log, times = self._sandbox.log_file(name), self._sandbox.times_file(name)
        while True:
            state = self.state()
            has_ended = bool(state) and ExecutionState.parse(state).phase == "ended"  # its log is complete now
            # Read before the log, so that the log has all lines that the samples refer to.
            new_times = _read(times, times_at, PART_BYTES)
            new_log = _read(log, log_at, PART_BYTES)
            # Read after the log, so that the state is no older: an instance whose output is visible is running.
            state = self.state()
            if state != last_state or new_log or has_ended or time.monotonic() > deadline:
                break
            time.sleep(_POLL_INTERVAL_S)
        is_log_complete = len(new_log) < PART_BYTES
        # `log` and `times` start at the caller's offsets; `is_all`: nothing more will arrive.
        return {
            "state": state,
            "log": new_log,
            "times": new_times if is_log_complete else b"",
            "is_all": has_ended and is_log_complete and len(new_times) < PART_BYTES,
        }

    def state(self) -> str:
        """Returns the state of the supervisor as JSON; empty before the start."""
        state = self._journal.state()
        return "" if state is None else state.to_json()

    def stop(self, reason_code: str, reason_message: str) -> None:
        """Requests the end of the instance."""
        self._journal.request_stop(reason_code, reason_message)

    def dial_tunnel(self, request: dict[str, Any]) -> dict[str, str]:
        """Connects the instance with the service that sent the request; returns a refusal, empty after success."""
        return dial_out(request, self._sandbox.state_dir, self._sandbox.root.name)

    # ---- outputs ----

    def outputs(
        self, channels: Sequence[str] | None = None, mount: int | None = None
    ) -> tuple[dict[str, FileInfo], list[str]]:
        """Returns the files of the outputs, or of a mount, that the job has changed, and the removed ones."""
        # `channels` is None for all.
        files = files_in(self._written_folder(mount))
        sent: dict[str, FileInfo] = json.loads(self._received_file(mount).read_text())

        def is_selected(path: str) -> bool:
            return channels is None or path.partition("/")[0] in channels

        changed = {path: info for path, info in files.items() if info != sent.get(path) and is_selected(path)}
        gone = [path for path, info in sent.items() if path not in files and is_selected(path)]
        return changed, [path for path in gone if sent[path] != ["folder"]]

    def read_output(self, path: str, at: int, mount: int | None = None) -> bytes:
        """Returns at most `PART_BYTES` of a file of the outputs, or of a mount."""
        with open_plain(self._written_folder(mount) / path) as file:
            file.seek(at)
            return file.read(PART_BYTES)

    def _written_folder(self, mount: int | None) -> Path:
        return self._ml / "output" if mount is None else self._mounts / str(mount)

    # ---- its end ----

    def end(self) -> None:
        """Kills remaining processes, and removes the instance's folder, and after the last one the job's."""
        with self._start_lock:
            if self._lifeline is not None:
                os.close(self._lifeline)
                self._lifeline = None
        deadline = time.monotonic() + _END_TIMEOUT_S
        while self._journal.is_locked() and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL_S)
        shutil.rmtree(self._sandbox.root, ignore_errors=True)
        os.close(self._lock)
        _remove_unused(self._job_dir)


def _private_folder(folder: Path) -> Path:
    """Creates a folder that other users cannot read; refuses one of another user."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} does not belong to this user")
    folder.chmod(0o700)
    return folder


def _lock_folder(job_dir: Path) -> int:
    """Creates and locks a job's folder, so that `_remove_unused` leaves it."""
    while True:
        job_dir.mkdir(mode=0o700, exist_ok=True)
        # Another process may have just removed the folder.
        with suppress(FileNotFoundError):
            lock = os.open(job_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            take_lock(lock, shared=True)
            with suppress(FileNotFoundError):
                # The locked file must still be the one in the folder: `_remove_unused` may have removed it before
                # the lock.
                if os.path.samestat(os.fstat(lock), (job_dir / "lock").stat()):
                    return lock
            os.close(lock)


def _remove_leftovers(service_dir: Path) -> None:
    """Removes folders of jobs whose processes were killed before they removed them."""
    for job_dir in service_dir.glob("*/*"):
        _remove_unused(job_dir)


def _remove_unused(job_dir: Path) -> None:
    """Removes a job's folder, unless a process of the job is alive."""
    with suppress(FileNotFoundError):
        lock = os.open(job_dir / "lock", os.O_RDWR)
        try:
            # Refused while an instance of the job holds the lock, shared.
            if take_lock(lock, waits=False):
                shutil.rmtree(job_dir, ignore_errors=True)
        finally:
            os.close(lock)


def _read(path: Path, at: int, max_bytes: int) -> bytes:
    try:
        with open_plain(path) as file:
            file.seek(at)
            return file.read(max_bytes)
    except FileNotFoundError:
        return b""
