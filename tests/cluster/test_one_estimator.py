"""One estimator as a local job, a training job and a job of DLC: in processes, Docker, Ray and Slurm.

A training job in processes is what the others are compared with. What cannot be alike is taken out by
`_PLACES_OWN` and the comments beside it; all else that a user sees is equal.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._client.job.training_job import TrainingJob
from tests.cluster.ray_cluster import RayCluster
from tests.cluster.slurm_cluster import SlurmCluster
from tests.docker.conftest import engine
from tests.docker.engine import BASE_IMAGE, Engine
from tests.support.service_process import end_service
from tests.support.waiting import PATIENCE_S
from tests.support.wheels import write_wheel

__all__ = ["engine"]

SOURCE = Path(__file__).parent / "one_estimator"
PLACES = ("process-dlc", "local", "docker", "docker-dlc", "ray", "ray-dlc", "slurm", "slurm-dlc")

# Variables of the contract that a place decides.
_PLACES_OWN = {
    "MASTER_ADDR": "a name in Docker and on clusters, 127.0.0.1 for processes",
    "MASTER_PORT": "a free port for processes, otherwise the usual one",
    "PAI_CONFIG_DIR": "DLC has no channel for it: it is in the folder of the job",
    "PAI_SDK_COMMAND": "for readers of jobs of DLC only",
    "PAI_SDK_HPS": "for readers of jobs of DLC only",
    "PAI_SDK_METRICS": "for readers of jobs of DLC only",
    "PAI_SDK_SUBMISSION": "for readers of jobs of DLC only",
    "DLC_JOB_ID": "of DLC, beside PAI_TRAINING_JOB_ID",
    "JOB_NAME": "of DLC, beside PAI_TRAINING_JOB_ID",
}
_CONTRACT = re.compile(r"PAI_\w+|DLC_\w+|JOB_NAME|RANK|WORLD_SIZE|NPROC_PER_NODE|MASTER_\w+|MINE|OTHER")


@dataclass(frozen=True)
class Outcome:
    """What a user sees of a job that has ended, with its id as `JOB`."""

    status: str
    variables: dict[str, dict[str, str]]
    logs: dict[str, list[str]]
    outputs: dict[str, dict[str, bytes]]
    metrics: list[tuple[str, float, int | None, str | None]]
    labels: dict[str, str]
    hyperparameters: dict[str, str]


def _run(session: Session, api: str, folder: Path) -> TrainingJob:
    is_local = api == "local"
    earlier = str(folder / "earlier")
    if not is_local:
        uri = f"oss://{session.settings.oss_bucket_name}/{uuid.uuid4().hex}/"
        earlier = session.upload(folder / "earlier", uri, progress=False)
    else:
        earlier = str(shutil.copytree(folder / "earlier", folder / "earlier of local jobs"))
    estimator = Estimator(
        BASE_IMAGE,
        "python3 train.py $PAI_USER_ARGS",
        source_dir=folder / "code",
        hyperparameters={"lr": 0.1, "layers": [1, 2], "name": "x"},
        environments={"MINE": 'it\'s "q" $HOME', "OTHER": "两"},
        metric_definitions=[{"name": "loss", "regex": r"loss=([0-9.]+)"}],
        checkpoints_path=earlier,
        labels={"team": "a"},
        instance_count=2,
        instance_type="local" if is_local else "ecs.c6.large",
        session=session,
        api="dlc" if api == "dlc" else None,
    )
    inputs = {"rows": folder / "rows.txt", "folder": folder / "folder"}
    job = estimator.fit(inputs, wait=False, show_logs=False, job_name="one-estimator")
    job.wait(4 * PATIENCE_S, show_logs=False)
    return job


def _outcome(job: TrainingJob, folder: Path) -> Outcome:
    logs: dict[str, list[str]] = {}
    variables = {}
    for line in job.logs():
        instance, text = line.instance.replace(job.id, "JOB"), line.text.replace(job.id, "JOB")
        if text.startswith("variables "):
            found = json.loads(text.removeprefix("variables "))
            variables[instance] = {
                name: value
                for name, value in found.items()
                if _CONTRACT.fullmatch(name) and name not in _PLACES_OWN
            }
        else:
            logs.setdefault(instance, []).append(text)
    # Before the first line of the program: whoever installs the requirements says so in words of its own.
    first_line = next(text for text in logs["JOB-master-0"] if text.startswith("arguments "))
    logs = {instance: lines[lines.index(first_line) :] for instance, lines in logs.items()}
    outputs = {}
    for channel in ("model", "checkpoints"):
        top = job.download(channel, folder / job.id / channel, progress=False)
        files = [path for path in sorted(top.rglob("*")) if path.is_file()]
        outputs[channel] = {str(path.relative_to(top)): path.read_bytes() for path in files}
    for name, content in outputs["checkpoints"].items():
        if name.endswith("/_COMPLETE"):  # it has the time, and the process that wrote it
            marker = {key: value for key, value in json.loads(content).items() if key not in ("time", "launch")}
            outputs["checkpoints"][name] = json.dumps(marker).encode()
    metrics = [
        (point.name, point.value, point.step, (point.instance or "").replace(job.id, "JOB"))
        for point in job.metrics()
    ]
    return Outcome(
        str(job.status),
        variables,
        logs,
        outputs,
        sorted(metrics, key=str),
        {name: value for name, value in job.labels.items() if not name.startswith("pai-sdk")},
        dict(job.record.hyperparameter_values),
    )


@contextmanager
def _embedded(folder: Path, executor: str, **options: str) -> Iterator[Session]:
    with Session.embedded(folder, executor=executor, executor_options=options) as session:
        try:
            yield session
        finally:
            end_service(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the estimator."""
    folder = tmp_path_factory.mktemp("one estimator")
    code = shutil.copytree(SOURCE, folder / "code", ignore=shutil.ignore_patterns("__pycache__"))
    write_wheel(code, "one_estimator_tiny", "1", "")
    for name, text in (
        ("code/requirements.txt", "./one_estimator_tiny-1-py3-none-any.whl\n"),
        ("rows.txt", "1\n2\n39\n"),
        ("folder/a b é.txt", "first"),
        ("folder/below/b.txt", "second"),
        ("earlier/earlier.txt", "from before"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[Session]:
    """A service whose jobs are processes."""
    with _embedded(folder / "process", "process") as session:
        yield session


@pytest.fixture(scope="module")
def first(process: Session, folder: Path) -> Outcome:
    """What the others are compared with."""
    return _outcome(_run(process, "", folder), folder / "first")


@pytest.fixture
def docker_host(engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine, as the one that the environment names."""
    monkeypatch.setenv("DOCKER_HOST", engine.socket)
    monkeypatch.setenv("PAI_LOCAL_DIR", str(folder / "local jobs"))


@pytest.fixture
def local(docker_host: None) -> Iterator[Session]:
    """Local jobs in Docker."""
    with Session() as session:
        yield session


@pytest.fixture
def docker(docker_host: None, tmp_path: Path) -> Iterator[Session]:
    """A service whose jobs are containers."""
    with _embedded(tmp_path / "docker", "docker") as session:
        yield session


@pytest.fixture
def ray(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Session]:
    """A service whose jobs run on Ray."""
    with _embedded(tmp_path / "ray", "ray", address=ray_cluster.client_address) as session:
        yield session


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster) -> Iterator[Session]:
    """A service whose jobs run on Slurm."""
    with _embedded(slurm_cluster.folder / f"one {uuid.uuid4().hex}", "slurm") as session:
        yield session


@pytest.mark.timeout(600)  # a place may have to start its cluster first
@pytest.mark.parametrize("place", PLACES)
def test_all_places_are_alike(place: str, first: Outcome, folder: Path, request: pytest.FixtureRequest) -> None:
    name, _, api = place.partition("-")
    session = request.getfixturevalue(name)
    other = _outcome(_run(session, "local" if name == "local" else api, folder), folder / place)
    assert other.logs == first.logs
    assert other.outputs == first.outputs
    assert other.metrics == first.metrics
    assert other.variables == first.variables
    assert other == first
