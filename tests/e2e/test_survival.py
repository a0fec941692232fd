"""The service is killed in the middle of a job: nothing is lost, and the follower goes on."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pai_sdk import Processor, Session
from pai_sdk._service.embedded import ensure_running
from tests.support import ml
from tests.support.service_process import wait_until_gone
from tests.support.waiting import PATIENCE_S
from tests.trials import checkpoint_bucket, checkpoints, saved_again, survival, tunnels


@pytest.mark.timeout(600)
def test_a_job_its_log_and_its_follower_outlive_the_service(service_dir: Path, session: Session) -> None:
    processor = Processor(
        "python:3.11",
        "for i in $(seq 1 60); do echo line $i; sleep 0.05; done",
        instance_type="ecs.c6.large",
        session=session,
    )
    job = processor.run(wait=False, show_logs=False)
    seen: list[str] = []
    begun = threading.Event()

    def follow() -> None:
        for line in job.logs(follow=True):
            if not line.text.startswith(ml.NOTICE):
                seen.append(line.text)
            if len(seen) == 10:
                begun.set()

    follower = threading.Thread(target=follow)
    follower.start()
    assert begun.wait(PATIENCE_S)
    first = ensure_running(service_dir)
    os.kill(first.pid, signal.SIGKILL)
    wait_until_gone(first.pid)
    second = ensure_running(service_dir)
    assert second.pid != first.pid
    assert second.access_key_id == first.access_key_id
    assert second.endpoint == first.endpoint or is_taken(first.endpoint)
    follower.join(PATIENCE_S)
    assert seen == [f"line {number}" for number in range(1, 61)]
    assert job.wait(PATIENCE_S, show_logs=False).status == "Succeed"
    assert len(list(session.list_jobs(name=job.name))) == 1


def is_taken(endpoint: str) -> bool:
    """Whether somebody else listens there by now; a port that was let go of is anybody's."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", urlsplit(endpoint).port))
        except OSError:
            return True
    return False


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_runs_twice_when_it_is_killed_under_load(tmp_path: Path) -> None:
    """The short form of `python -m tests.trials survival`."""
    report = survival.run(tmp_path / "trial", kills=3, seed=7)
    assert report.faults == []
    assert report.kills == 3
    assert sum(report.jobs.values()) >= 3


@pytest.mark.timeout(600)
def test_a_tunnel_whose_connections_are_cut_loses_nothing(tmp_path: Path) -> None:
    """The short form of `python -m tests.trials tunnels`."""
    report = tunnels.run(tmp_path / "trial", cuts=40, kills=1, seed=7, silent=8)
    assert report.faults == []
    assert report.kills == 1
    assert report.reconnections >= 20


@pytest.mark.timeout(600)
def test_a_job_killed_with_everything_while_it_writes_a_checkpoint_is_resumed(tmp_path: Path) -> None:
    """The short form of `python -m tests.trials checkpoints`."""
    report = checkpoints.run(tmp_path / "trial", kills=4, seed=7)
    assert report.faults == []
    assert report.kills == 4


def test_a_bucket_always_has_a_complete_checkpoint(tmp_path: Path) -> None:
    """The short form of `python -m tests.trials checkpoint_bucket`."""
    report = checkpoint_bucket.run(tmp_path / "trial", kills=4, seed=3)
    assert report.faults == []
    assert report.newest > 0


def test_a_step_that_is_saved_again_is_never_without_a_complete_checkpoint(tmp_path: Path) -> None:
    """The short form of `python -m tests.trials saved_again`."""
    report = saved_again.run(tmp_path / "trial", kills=12, seed=3)
    assert report.faults == []
    assert report.saves > 0
