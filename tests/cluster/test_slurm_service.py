"""A user's session on a Slurm cluster: submitted, watched and downloaded like any other job."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._service.embedded import find_running
from pai_sdk._service.services import backup
from pai_sdk.errors import JobFailed, ServiceStartError
from tests.cluster.queue_nodes import hosts_of, nodes_in_queue
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.test_all_reduce import AllReduce, Place
from tests.docs.conftest import run_page
from tests.support.service_process import end_service
from tests.support.waiting import quickest, until

__all__ = ["run_page"]


@pytest.fixture
def folder(slurm_cluster: SlurmCluster) -> Iterator[Path]:
    """A data folder that all nodes share; its service is ended."""
    folder = slurm_cluster.folder / "service data" / uuid.uuid4().hex
    yield folder
    if find_running(folder) is not None:
        end_service(folder)


@pytest.fixture
def session(folder: Path) -> Session:
    return Session.embedded(folder, executor="slurm")


def estimator(session: Session, command: str, count: int = 1) -> Estimator:
    return Estimator("unused", command, instance_count=count, session=session, instance_type="any")


class TestSlurm(AllReduce):
    @pytest.fixture
    def place(self, folder: Path) -> Place:
        return Place(folder, Session.embedded(folder, executor="slurm", executor_options={"partition": "batch"}))


def test_a_job_of_two_instances_with_inputs_and_outputs(session: Session, tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("1\n2\n")
    command = 'cat "$PAI_INPUT_TRAIN"; echo "$RANK of $WORLD_SIZE" | tee "$PAI_OUTPUT_MODEL/$RANK"'
    job = estimator(session, command, 2).fit({"train": str(tmp_path / "numbers.csv")})
    job.download("model", str(tmp_path / "model"))
    found = {path.name: path.read_text() for path in (tmp_path / "model").iterdir()}
    assert found == {"0": "0 of 2\n", "1": "1 of 2\n"}
    assert sorted(line.text for line in job.logs()) == ["0 of 2", "1", "1", "1 of 2", "2", "2"]


@pytest.mark.parametrize("option", ["partition", "reservation"])
def test_a_job_that_slurm_refuses_ends_with_its_words(
    folder: Path, option: str, slurm_cluster: SlurmCluster
) -> None:
    session = Session.embedded(folder, executor="slurm", executor_options={option: "nonesuch"})
    with pytest.raises(JobFailed, match=f"sbatch: .*{option}"):
        estimator(session, "true").fit(show_logs=False)
    assert not slurm_cluster.command("squeue", "-h").strip()


def test_wrong_options_are_told_all_at_once_before_the_service_starts(
    slurm_cluster: SlurmCluster, folder: Path
) -> None:
    options = [f"--executor-option={text}" for text in ("partitoin=gpu", "qos=a b", "cpus_per_instance=0")]
    command = [sys.executable, "-m", "pai_sdk", "serve", "--data", str(folder), "--executor", "slurm", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, -15)
    said = " ".join(done.stderr.split())
    for part in ("did you mean partition?", "'a b' cannot be used", "'0' cannot be used"):
        assert part in said, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    with pytest.raises(ServiceStartError, match="did you mean partition"):
        Session.embedded(folder, executor="slurm", executor_options={"partitoin": "gpu"})


def test_the_queue_has_the_nodes_and_a_stop_frees_them_within_ten_seconds(
    session: Session, folder: Path, slurm_cluster: SlurmCluster
) -> None:
    def seconds() -> float:
        job = estimator(session, "hostname; exec sleep 1000", 3).fit(wait=False, show_logs=False)
        hosts = hosts_of(job, 3)
        assert nodes_in_queue(folder, job) == hosts
        assert {*hosts.values()} <= {node.name for node in slurm_cluster.workers}
        begun = time.monotonic()
        job.stop()
        until(lambda: not slurm_cluster.command("squeue", "-h").strip(), "free nodes")
        took_s = time.monotonic() - begun
        until(lambda: job.refresh().status == "Terminated", "the end of the job")
        return took_s

    assert quickest(seconds, enough_s=10, tries=3) < 10


def test_a_backup_of_a_running_job_leaves_that_job_alone(
    session: Session, folder: Path, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    command = 'echo up; until [ -e "$PAI_OUTPUT_MODEL/go" ]; do sleep 0.1; done; echo end'
    job = estimator(session, command).fit(wait=False, show_logs=False)
    next(iter(job.logs(follow=True)))
    backup.back_up(folder, tmp_path / "backup")
    end_service(folder)
    other = folder.with_name(f"{folder.name}-other")
    backup.restore(tmp_path / "backup", other)
    assert (other / "executor.json").read_bytes() == (folder / "executor.json").read_bytes()
    with Session.embedded(other) as restored:
        try:
            again = restored.get_job(job.id)
            with pytest.raises(JobFailed):
                again.wait(60, show_logs=False)
            assert [line.text for line in again.logs()] == ["up"]
            again.delete()
        finally:
            end_service(other)
    (folder / "jobs" / job.id / "ml" / "output" / "model" / "go").touch()
    with Session.embedded(folder) as first:
        job = first.get_job(job.id)
        job.wait(60, show_logs=False)
        assert [line.text for line in job.logs()] == ["up", "end"]


def test_a_job_array_of_the_same_user_is_no_obstacle(session: Session, slurm_cluster: SlurmCluster) -> None:
    slurm_cluster.command("sbatch", "--array=1-3", "--job-name=a|b", "--hold", "--output=/dev/null", "--wrap=true")
    job = estimator(session, "echo up; exec sleep 1000").fit(wait=False, show_logs=False)
    next(iter(job.logs(follow=True)))
    slurm_cluster.command("scancel", f"--name=pai-{job.id}")
    with pytest.raises(JobFailed, match="StoppedFromOutside"):
        job.wait(60, show_logs=False)
    assert "a|b" in slurm_cluster.command("squeue", "-h", "--format=%j")


@pytest.fixture
def fresh_place(folder: Path, clean_home: Path) -> Iterator[Path]:
    """An empty folder that all nodes share; the service that an example leaves behind is ended."""
    folder.mkdir(parents=True)
    yield folder
    end_service(folder / "pai-data")


def test_the_examples_of_the_page_work(run_page: Callable[[Path], tuple[int, str]]) -> None:
    status, said = run_page(Path(__file__).parents[2] / "docs" / "slurm.md")
    assert status == 0, said


def test_a_preempted_job_goes_on_when_there_is_room(folder: Path, slurm_cluster: SlurmCluster) -> None:
    options = {"partition": "preemptible", "cpus_per_instance": "4"}
    session = Session.embedded(folder, executor="slurm", executor_options=options)
    saved = '"$PAI_OUTPUT_CHECKPOINTS/saved"'
    resumes = f"if [ -e {saved} ]; then cat {saved}; exit; fi"
    saves = f"trap 'trap \"\" TERM; echo half | tee {saved}; exit 0' TERM"  # Slurm may send it twice
    patient = Estimator(
        "unused",
        f"{resumes}; {saves}; echo up; while :; do sleep 0.1; done",
        instance_count=3,
        session=session,
        instance_type="any",
        max_retries=2,
    )
    job = patient.fit(wait=False)
    until(lambda: [line.text for line in job.logs()].count("up") == 3, "all instances run")
    slurm_cluster.command("srun", "-N3", "--exclusive", "true")
    job.wait(show_logs=False)
    texts = [line.text for line in job.logs()]
    assert (texts.count("up"), texts.count("half")) == (3, 6), texts
    assert any("Preempted" in event for event in job.events()), "the events say why"
