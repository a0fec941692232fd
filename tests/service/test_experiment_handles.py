"""Experiments as users of the library have them, on a real service."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from pai_sdk import Experiment, Processor, Session, TrainingJob
from pai_sdk.errors import ConflictError, InvalidInputError, InvalidRequestError, NotFoundError
from tests.service.services import Client, session_on


@pytest.fixture
def session(service: Client) -> Iterator[Session]:
    with session_on(service.info) as session:
        yield session


@pytest.fixture
def name() -> str:
    return f"handle-{uuid.uuid4().hex[:8]}"


def job_of(experiment: Experiment | None, session: Session) -> TrainingJob:
    processor = Processor(
        "none", "true", instance_type="ecs.c6.large", experiment_config=experiment, session=session
    )
    return processor.run(wait=False, show_logs=False)


def test_an_experiment_from_its_creation_to_its_end(session: Session, name: str) -> None:
    made = Experiment.create(name, labels={"team": "x"}, accessibility="PUBLIC", session=session)
    assert (made.name, made.labels, made.record.accessibility) == (name, {"team": "x"}, "PUBLIC")
    assert made.artifact_uri == f"oss://pai-local/pai/experiments/{made.experiment_id}/"
    assert repr(made) == f"<Experiment {name} {made.experiment_id}>"
    for same in (
        Experiment.get(made.experiment_id, session=session),
        Experiment.find(name, session=session),
        *Experiment.list(name=name, labels={"team": "x"}, session=session),
    ):
        assert same.experiment_id == made.experiment_id
    assert made.update(name=f"{name}-2", accessibility="PRIVATE").name == f"{name}-2"
    assert made.set_labels({"a/b": "1"}).labels == {"a/b": "1", "team": "x"}
    assert made.delete_label("a/b").labels == {"team": "x"}
    made.delete()
    with pytest.raises(NotFoundError):
        made.refresh()
    with pytest.raises(InvalidInputError, match=f"there is no experiment '{name}-2'"):
        Experiment.find(f"{name}-2", session=session)


def test_an_experiment_has_the_jobs_that_were_submitted_with_it(session: Session, name: str) -> None:
    experiment = Experiment.create(name, session=session)
    other = Experiment.create(f"{name}-other", session=session)
    jobs = [job_of(experiment, session) for _ in range(2)]
    job_of(other, session)
    job_of(None, session)
    assert [job.id for job in experiment.jobs()] == [job.id for job in reversed(jobs)]
    named = {"ExperimentId": experiment.experiment_id, "ExperimentName": name}
    assert jobs[0].refresh().experiment_config == named


def test_the_plan_names_the_experiment_and_its_folder(session: Session, name: str) -> None:
    experiment = Experiment.create(name, session=session)
    forms = (experiment, experiment.config, {"experiment_id": experiment.experiment_id})
    for form in forms:
        plan = Processor(
            "none", "true", instance_type="ecs.c6.large", experiment_config=form, session=session
        ).plan(outputs={"table": None})
        wire = plan.request.to_wire()
        assert wire["ExperimentConfig"] == {"ExperimentId": experiment.experiment_id}
        folder = wire["TrainingJobName"].replace("-", "")
        assert wire["OutputChannels"][0]["OutputUri"] == f"{experiment.artifact_uri}{folder}/table/"


def test_what_the_service_refuses_is_told(session: Session, name: str) -> None:
    Experiment.create(name, session=session)
    with pytest.raises(ConflictError, match="already"):
        Experiment.create(name, session=session)
    with pytest.raises(InvalidRequestError, match="Name"):
        Experiment.create("1 name", session=session)
    with pytest.raises(NotFoundError, match="no experiment"):
        Experiment.get("exp-none", session=session)
