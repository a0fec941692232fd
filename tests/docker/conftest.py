"""What these tests need: a Docker engine. They start their own; where none can be had they say so and skip."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import docker
import pytest

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission import submit as submit_plan
from pai_sdk._host.execution.docker.container import LABEL_JOB
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.docker.engine import BASE_IMAGE, Engine, why_not
from tests.docs.conftest import fresh_place, run_page
from tests.support.packages import install_packages
from tests.support.waiting import PATIENCE_S

__all__ = ["LONG_GRACE", "fresh_place", "lines_of", "run_page"]  # the fixtures for the page about local jobs

BUSYBOX = "pai-sdk-test:busybox"

# For who saves when it is told to end, and must not be killed at it however slow the machine.
LONG_GRACE = {"pai-sdk.local.grace_s": f"{PATIENCE_S:.0f}"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first of these tests may have to wait for an engine to be installed and its image to be made."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A private engine with the base image. At the end nothing of ours may be left in it."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    # Sockets have short names, so not below pytest's own folder.
    folder = Path(f"/tmp/pai-docker-{os.getpid()}")
    engine = Engine(folder)

    def end(*_: Any) -> None:
        engine.down()
        os._exit(143)

    # CI ends the suite by this signal when another step has failed; the engine must not stay behind.
    signal.signal(signal.SIGTERM, end)
    engine.up()
    try:
        engine.load_base()
        yield engine
        with engine.client() as client:
            left = [*client.containers.list(all=True), *client.networks.list(filters={"label": LABEL_JOB})]
            assert not left, f"left behind: {[one.name for one in left]}"
    finally:
        engine.down()
    assert not (found := _left_on_this_machine(tmp_path_factory.getbasetemp())), f"left behind: {found}"


def _left_on_this_machine(tests: Path) -> list[str]:
    """Folders that these tests made beside pytest's own, and what is still mounted in either."""
    folders = [str(path) for path in Path("/tmp").glob(f"pai-*-{os.getpid()}")]
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    ours = (f"{tests}/", *(f"/tmp/pai-{kind}-{os.getpid()}/" for kind in ("docker", "user", "podman")))
    return folders + [point for point in points if point.startswith(ours)]


@pytest.fixture(scope="session")
def busybox(engine: Engine) -> str:
    """An image with Debian's static busybox and nothing else."""
    install_packages("busybox-static", programs=("busybox",))
    program = shutil.which("busybox")
    assert program
    names = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(program, "bin/busybox")
        for name in (name for name in names if name != "busybox"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    with engine.client() as client:
        client.api.import_image_from_data(archive.getvalue(), repository="pai-sdk-test", tag="busybox")
    return BUSYBOX


@pytest.fixture
def docker_host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine, as the one that the environment names."""
    monkeypatch.setenv("DOCKER_HOST", engine.socket)
    return engine


@pytest.fixture
def backend(docker_host: Engine, tmp_path: Path) -> Iterator[LocalBackend]:
    """Local jobs below the test's folder; those that still run at its end are killed."""
    backend = LocalBackend(tmp_path / "local")
    yield backend
    for record in backend.list():
        remove_all(docker_host, record.training_job_id)
    backend.close()


@pytest.fixture
def another(backend: LocalBackend) -> Iterator[Callable[[], LocalBackend]]:
    """Makes further backends on the same folder, as other processes would have them."""
    with ExitStack() as stack:

        def another() -> LocalBackend:
            other = LocalBackend(backend.data_dir)
            stack.callback(other.close)
            return other

        yield another


def remove_all(engine: Engine, job_id: str) -> None:
    """Kill what a job has in the engine; a thread of a test may be at it too."""
    with engine.client() as client:
        label = {"label": f"{LABEL_JOB}={job_id}"}
        deadline = time.monotonic() + 60
        while left := [
            *client.containers.list(all=True, ignore_removed=True, filters=label),
            *client.networks.list(filters=label),
        ]:
            assert time.monotonic() < deadline, f"cannot be removed: {left}"
            for one in left:
                with suppress(docker.errors.APIError):
                    one.remove(**({"force": True} if hasattr(one, "kill") else {}))


Submit = Callable[..., TrainingJob]


@pytest.fixture
def submit(backend: LocalBackend) -> Submit:
    """Submits a shell command as a local job; `fields` are those of the wire."""

    def submit(command: str, *, count: int = 1, image: str = BASE_IMAGE, **fields: Any) -> TrainingJob:
        tags = fields.pop("tags", None)
        wire = {
            "TrainingJobName": "test",
            "ComputeResource": {"EcsSpec": "local", "EcsCount": count, **fields.pop("compute", {})},
            "AlgorithmSpec": {"Image": image, "Command": ["sh", "-c", command], "JobType": "PyTorchJob"},
            **({"Settings": {"Tags": tags}} if tags else {}),
            **fields,
        }
        request = TrainingJobRequest.model_validate(wire)
        return TrainingJob(submit_plan(Plan(request), backend, progress=False), backend)

    return submit


def lines_of(job: TrainingJob, instance: int | None = None) -> list[str]:
    """All lines of a job that has ended, or of one of its instances."""
    names = job.record.instance_names
    wanted = names if instance is None else [names[instance]]
    return [line.text for line in job.logs() if line.instance in wanted]
