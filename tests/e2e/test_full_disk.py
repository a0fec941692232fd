"""A service whose disk is full, or cannot be written: each fault is one sentence, and goes away with its cause.

The service runs in a mount namespace of its own, on a small file system that nobody else sees.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from pai_sdk import Processor, Session, TrainingJob
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._service.settings import ServiceInfo
from pai_sdk._service.state.folder import read_info
from pai_sdk.errors import JobFailed, PaiError
from tests.service.services import running_service
from tests.support import ml
from tests.support.waiting import PATIENCE_S, until

_SIZE_MIB = 96
_SERVE = 'mount -t tmpfs -o size=$1m,mode=700 none "$2" && shift 2 && exec "$@"'

pytestmark = pytest.mark.skipif(not ml.can_be_had(), reason="needs the right to mount")


@dataclass
class SmallService:
    """A service on a disk of some megabytes."""

    process: subprocess.Popen[bytes]
    info: ServiceInfo
    data: Path
    log: Path

    @property
    def disk(self) -> Path:
        """The data folder as we can reach it: through the process that sees it."""
        return Path(f"/proc/{self.process.pid}/root{self.data}")

    def session(self, retry: RetryPolicy | None = None) -> Session:
        return Session(
            self.info.region_id,
            self.info.workspace_id,
            oss_bucket_name=self.info.bucket,
            endpoint=self.info.endpoint,
            oss_endpoint=self.info.oss_endpoint,
            access_key_id=self.info.access_key_id,
            access_key_secret=self.info.access_key_secret,
            retry=retry,
        )

    def fill(self) -> None:
        """Leave no room at all."""
        with (self.disk / "ballast").open("ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))

    def free(self) -> None:
        (self.disk / "ballast").unlink()

    def restart(self) -> None:
        """End the service, and start another one that sees the same disk."""
        kinds = {"mnt": "--mount"} if os.geteuid() == 0 else {"user": "--user", "mnt": "--mount"}
        with ExitStack() as stack:  # as long as somebody has them open, namespaces live on without a process
            opened = {
                option: stack.enter_context(Path(f"/proc/{self.process.pid}/ns/{kind}").open()).fileno()
                for kind, option in kinds.items()
            }
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_S)
            enter = [f"{option}=/proc/self/fd/{descriptor}" for option, descriptor in opened.items()]
            serve = [sys.executable, "-m", "pai_sdk._service", "--data", str(self.data)]
            with self.log.open("ab") as output:
                self.process = subprocess.Popen(
                    ["nsenter", *enter, *serve], pass_fds=opened.values(), stdout=output, stderr=output
                )
            self.info = until(lambda: (info := read_info(self.disk)) and info.pid == self.process.pid and info)

    def faults(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if " INFO " not in line]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallService]:
    data, log = tmp_path / "data", tmp_path / "service.log"
    data.mkdir()
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    serve = [sys.executable, "-m", "pai_sdk._service", "--data", str(data)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*namespace, "sh", "-c", _SERVE, "sh", str(_SIZE_MIB), str(data), *serve], stdout=output, stderr=output
        )
    try:
        disk = Path(f"/proc/{process.pid}/root{data}")
        service = SmallService(process, until(lambda: read_info(disk)), data, log)
    except BaseException:
        end(process)
        raise
    yield service
    end(service.process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE_S)


def start(small: SmallService, command: str, retry: RetryPolicy | None = None) -> TrainingJob:
    processor = Processor("python:3.11", command, instance_type="ecs.c6.large", session=small.session(retry))
    outputs = {"model": f"oss://{small.info.bucket}/out/"}
    return processor.run(outputs=outputs, wait=False, show_logs=False)


def accepted(small: SmallService, command: str) -> TrainingJob | None:
    """The job; None as long as the room that was given back is not there yet."""
    try:
        return start(small, command)
    except PaiError:
        return None


def test_a_job_that_fills_the_disk_fails_with_that_reason(small: SmallService) -> None:
    job = start(small, 'dd if=/dev/zero of="$PAI_OUTPUT_MODEL/big" bs=1M count=500')
    with pytest.raises(JobFailed) as caught:
        job.wait(PATIENCE_S, show_logs=False)
    assert caught.value.reason_code == "DiskFull"
    assert "is full. Free some space" in str(caught.value)
    job.delete()
    assert until(lambda: accepted(small, "true")).wait(PATIENCE_S, show_logs=False).status == "Succeed"


def test_on_a_full_disk_a_running_job_ends_and_a_new_one_is_refused(small: SmallService) -> None:
    running = start(small, "echo up; while [ ! -e go ]; do sleep 0.05; done; exit 3")
    next(line for line in running.logs(follow=True) if line.text == "up")
    # Until that is written down: on a full disk the service gives up its reserve for it, and there is room again.
    until(lambda: [instance.status for instance in running.refresh().instances] == ["Running"])
    small.fill()
    with pytest.raises(PaiError, match="disk of the service is full"):
        start(small, "echo never", retry=RetryPolicy(deadline_s=1))
    (small.disk / "jobs" / running.id / "ml" / "usercode" / "go").mkdir()  # a folder needs no room here
    with pytest.raises(JobFailed) as caught:
        running.wait(PATIENCE_S, show_logs=False)
    assert caught.value.reason_code == "DiskFull"
    small.free()
    assert until(lambda: accepted(small, "true")).wait(PATIENCE_S, show_logs=False).status == "Succeed"
    assert all("Traceback" not in line for line in small.faults()), small.faults()


def test_a_service_begins_on_a_full_disk_so_that_jobs_can_be_deleted(small: SmallService) -> None:
    job = start(small, "true")
    job.wait(PATIENCE_S, show_logs=False)
    assert (small.disk / "reserve").exists()
    small.fill()
    small.restart()
    assert not (small.disk / "reserve").exists()
    TrainingJob.get(job.id, session=small.session()).delete()
    small.free()
    assert until(lambda: accepted(small, "true")).wait(PATIENCE_S, show_logs=False).status == "Succeed"
    assert all("Traceback" not in line for line in small.faults()), small.faults()


def test_outputs_without_room_fail_the_job(small: SmallService) -> None:
    job = start(
        small, 'head -c 20000000 /dev/urandom > "$PAI_OUTPUT_MODEL/w"; while [ ! -e go ]; do sleep 0.05; done'
    )
    output = small.disk / "jobs" / job.id / "ml" / "output" / "model" / "w"
    until(lambda: output.exists() and output.stat().st_size == 20_000_000)
    small.fill()
    (output.parents[2] / "usercode" / "go").mkdir()
    with pytest.raises(JobFailed) as caught:
        job.wait(PATIENCE_S, show_logs=False)
    assert caught.value.reason_code == "OutputsNotSaved"
    assert "No space left on device" in str(caught.value)


def test_a_second_service_on_the_folder_is_refused_with_one_sentence(tmp_path: Path) -> None:
    with running_service(tmp_path / "data"):
        second = serve(tmp_path / "data")
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert "another service already runs on" in second.stderr


def test_a_folder_that_cannot_be_written_is_refused_with_one_sentence(tmp_path: Path) -> None:
    readonly = tmp_path / "readonly"
    readonly.mkdir()
    unwritable = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    script = 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"'
    refused = serve(readonly / "data", under=[*unwritable, "sh", "-c", script, "sh", str(readonly)])
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "cannot be used: Read-only file system; choose another one" in refused.stderr


def test_a_disk_without_any_room_is_refused_with_one_sentence(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    script = 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"'
    refused = serve(full / "data", under=[*namespace, "sh", "-c", script, "sh", str(full)])
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "cannot be used: No space left on device; free some space, or choose another one" in refused.stderr


def serve(data: Path, *, under: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*(under or []), sys.executable, "-m", "pai_sdk._service", "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
