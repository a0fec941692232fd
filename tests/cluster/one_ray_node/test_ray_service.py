"""A user's session on a Ray cluster: submitted, watched and downloaded like any other job."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk import Estimator, Session
from pai_sdk._service.embedded import find_running
from pai_sdk.errors import JobFailed, ServiceStartError
from tests.cluster.one_ray_node.local_cluster import LocalCluster
from tests.support.waiting import until


@pytest.fixture
def session(cluster: LocalCluster, tmp_path: Path) -> Iterator[Session]:
    def open_session() -> Session | None:
        try:
            return Session.ray(cluster.address, data_dir=tmp_path / "data")
        except ServiceStartError as error:
            if "cannot be used" in str(error):  # the cluster is still starting
                return None
            raise

    with until(open_session, "the cluster", within_s=200, pause_s=1) as session:
        yield session
    running = find_running(tmp_path / "data")
    if running is not None:
        os.kill(running.pid, signal.SIGTERM)
        until(lambda: find_running(tmp_path / "data") is None, "its end")


def test_a_job_of_two_instances_with_inputs_and_outputs(session: Session, tmp_path: Path) -> None:
    (tmp_path / "numbers.csv").write_text("1\n2\n")
    command = 'cat "$PAI_INPUT_TRAIN"; echo "$RANK of $WORLD_SIZE, lr=$PAI_HPS_LR" | tee "$PAI_OUTPUT_MODEL/$RANK"'
    estimator = Estimator(
        "unused", command, hyperparameters={"lr": 0.1}, instance_count=2, session=session, instance_type="any"
    )
    job = estimator.fit({"train": str(tmp_path / "numbers.csv")})
    job.download("model", str(tmp_path / "model"))
    found = {path.name: path.read_text() for path in (tmp_path / "model").iterdir()}
    assert found == {"0": "0 of 2, lr=0.1\n", "1": "1 of 2, lr=0.1\n"}
    lines = [line.text for line in job.logs()]
    assert sorted(lines) == sorted(["1", "2", "0 of 2, lr=0.1", "1", "2", "1 of 2, lr=0.1"])


def test_a_failure_has_its_reason(session: Session) -> None:
    with pytest.raises(JobFailed) as failed:
        Estimator("unused", "exit 3", session=session, instance_type="any").fit()
    assert failed.value.reason_code == "NonZeroExit"


def test_a_data_folder_keeps_its_cluster(session: Session, tmp_path: Path) -> None:
    with pytest.raises(ServiceStartError, match="choose another data_dir"):
        Session.ray("ray://elsewhere:10001", data_dir=tmp_path / "data")
    with Session.embedded(tmp_path / "data") as same:
        assert same.settings.endpoint == session.settings.endpoint
