"""Programs and files in jobs on the nodes of a Ray and of a Slurm cluster, which connect to the service."""

from __future__ import annotations

import os
import threading
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.tunnel.opening import JobTunnel
from pai_sdk.errors import InvalidRequestError, PaiError, TunnelClosedError
from tests.service.services import Client, job_body, running_service, session_on
from tests.service.tunnel.test_real_jobs import COUNT, NUMBERS, output, shell
from tests.support.waiting import PATIENCE_S, until

BYTES = 5 << 20
TWO = {"EcsSpec": "any", "EcsCount": 2}


class Place(NamedTuple):
    """A folder for the service, and what it needs to run jobs on a cluster."""

    folder: Path
    settings: dict[str, Any]


@pytest.fixture(params=["ray", "slurm"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "slurm":
        cluster = request.getfixturevalue("slurm_cluster")
        return Place(cluster.folder / "service data" / uuid.uuid4().hex, {"executor": "slurm"})
    cluster = request.getfixturevalue("ray_cluster")
    return Place(tmp_path / "data", {"executor": "ray", "executor_options": {"address": cluster.client_address}})


def running(client: Client, **fields: Any) -> TrainingJob:
    job_id = client.create(job_body("echo up; exec sleep 1000", **fields))
    client.until(job_id, "Running", timeout_s=4 * PATIENCE_S)
    until(lambda: client.log(job_id), "its output", within_s=PATIENCE_S)
    return session_on(client.info).get_job(job_id)


def entered(job: TrainingJob, instance: str | None = None) -> JobTunnel:
    return EnteredJob(job.backend, job.refresh()).connect(instance)


def stop(client: Client, job: TrainingJob) -> None:
    job.stop()
    client.until(job.id, timeout_s=4 * PATIENCE_S)


def test_programs_files_and_stacks(place: Place, tmp_path: Path) -> None:
    with running_service(place.folder, host="0.0.0.0", **place.settings) as client:
        job = running(client, ComputeResource=TWO)
        results = job.exec(
            ["sh", "-c", "cat; echo $RANK; exit 3"], input=b"text\n", all_instances=True, capture=True
        )
        assert [result.stdout for result in results] == [b"text\n0\n", b"text\n1\n"]
        assert [result.exit_code for result in results] == [3, 3]

        source = tmp_path / "source"
        source.write_bytes(os.urandom(BYTES))
        assert job.copy_to(source, "/ml/output/copy", instance=1, progress=False) == "/ml/output/copy"
        job.copy_from("/ml/output/copy", tmp_path / "back", instance=1, progress=False)
        assert (tmp_path / "back").read_bytes() == source.read_bytes()

        stacks = job.stacks()
        assert not stacks.problems
        assert len({process.instance for process in stacks.processes}) == 2, stacks

        with entered(job) as tunnel:
            stream = shell(tunnel, "echo started; sleep 600")
            assert stream.read() == b"started\n"
            stop(client, job)
            with pytest.raises(TunnelClosedError):
                stream.wait_exit(PATIENCE_S)
        with pytest.raises(PaiError):
            job.exec(["true"], capture=True)


def test_a_restart_of_the_service_loses_nothing_of_a_program(place: Place) -> None:
    settings = {**place.settings, "host": "0.0.0.0"}
    with ExitStack() as stack:
        with running_service(place.folder, **settings) as client:
            job = running(client)
            tunnel = stack.enter_context(entered(job))
            stream, received = shell(tunnel, COUNT), list[bytes]()
            reader = threading.Thread(target=lambda: received.extend(output(stream)))
            reader.start()
        stream.write(b"hello\n")  # while there is no service
        with running_service(place.folder, **settings) as client:
            reader.join(3 * PATIENCE_S)
            assert received == [*NUMBERS, b"hello"]
            assert stream.wait_exit(PATIENCE_S) == 7
            stop(client, session_on(client.info).get_job(job.id))


def test_a_service_on_loopback_says_how_nodes_reach_it(place: Place) -> None:
    with running_service(place.folder, **place.settings) as client:
        job = running(client)
        with pytest.raises(InvalidRequestError, match="--host") as refused:
            job.exec(["true"], capture=True)
        assert refused.value.code == "NotSupported"
        stop(client, job)
