"""Jobs in memory for a tuner: each poll of a job shows one more value of its curve."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submission import submit
from pai_sdk._data.run.report.checkpoints import commit, complete_checkpoints
from pai_sdk._data.run.store.resume import ResumePoint
from pai_sdk._data.storage.stores.local import path_of_file_uri
from pai_sdk._wire.pai.record import JobRecord, MetricPoint, RecordSource
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.errors import NotFoundError
from tests.support.fake_backend import FakeBackend

Curve = Sequence[float]


@dataclass
class FakeJob:
    """One job: the values that it will report, how it will end, and how far it is."""

    id: str
    request: TrainingJobRequest
    curve: Curve
    end: str = "Succeed"
    reason: str = ""
    seen: int = 0
    status: str = "Running"
    resume: ResumePoint | None = None
    checkpoints: Path | None = None
    later_labels: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        return {label.key: label.value for label in self.request.labels or ()} | self.later_labels

    def advance(self) -> None:
        if self.status == "Running":
            self.seen += 1
            if self.seen >= len(self.curve):
                self.seen, self.status = len(self.curve), self.end
                self.save()

    def save(self) -> None:
        """Leave a checkpoint, whose step goes on from the one that the job was given."""
        if self.checkpoints is None or self.end != "Succeed":
            return
        start = next(iter(complete_checkpoints(self.checkpoints)), None)
        step = (start.step or 0 if start else 0) + len(self.curve)
        folder = self.checkpoints / str(step)
        folder.mkdir(parents=True)
        (folder / "job").write_text(self.id)
        commit(folder, step=step)


class FakeJobs(FakeBackend):
    """Makes jobs from plans.

    Args:
        curve: the values of `loss` of a job, by its hyperparameters.
        ends: how the n-th created job ends, and its reason code; those that are not there succeed.
        outputs: the folder of outputs; with it, each job that succeeds has saved a checkpoint.
    """

    def __init__(
        self,
        curve: Callable[[Mapping[str, str]], Curve],
        ends: Mapping[int, tuple[str, str]] | None = None,
        outputs: Path | None = None,
    ) -> None:
        super().__init__()
        self.curve, self.ends = curve, dict(ends or {})
        self.outputs = outputs
        self.jobs: dict[str, FakeJob] = {}
        self.most_at_once = 0
        self.is_paused = False
        self._create_sampler = threading.RLock()

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        with self._create_sampler:
            number = len(self.jobs)
            values = {one.name: one.value for one in plan.request.hyperparameters}
            end, reason = self.ends.get(number, ("Succeed", ""))
            job = FakeJob(f"train{number}", plan.request, self.curve(values), end, reason)
            job.resume = plan.resume
            uris = {one.name: one.output_uri for one in plan.request.output_channels}
            if self.outputs is not None:
                job.checkpoints = path_of_file_uri(uris["checkpoints"] or "")
            self.jobs[job.id] = job
            running = sum(each.status == "Running" for each in self.jobs.values())
            self.most_at_once = max(self.most_at_once, running)
            return job.id

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        self.jobs[job_id].later_labels.update(labels)

    def default_output(self, job_folder: str, channel: str) -> str:
        if self.outputs is None:
            return super().default_output(job_folder, channel)
        return (self.outputs / job_folder / channel).as_uri() + "/"

    def find(self, request: TrainingJobRequest, *, of_any_age: bool = False) -> Sequence[str]:
        label = request.label(SUBMISSION_LABEL)
        return [job.id for job in self.jobs.values() if job.request.label(SUBMISSION_LABEL) == label]

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        with self._create_sampler:
            if job_id not in self.jobs:
                raise NotFoundError(f"no {job_id}", code="NotFound", status_code=404)
            job = self.jobs[job_id]
            if not self.is_paused:
                job.advance()
            latest = [{"Name": "loss", "Value": job.curve[job.seen - 1]}] if job.seen and job.curve else []
            record = JobRecord.model_validate(
                {
                    "TrainingJobId": job.id,
                    "TrainingJobName": job.request.training_job_name,
                    "Status": job.status,
                    "ReasonCode": job.reason or None,
                    "LatestMetrics": latest,
                    "HyperParameters": [
                        {"Name": one.name, "Value": one.value} for one in job.request.hyperparameters
                    ],
                    "OutputChannels": [
                        {"Name": "model", "OutputUri": f"oss://bucket/{job.id}/model/"},
                        *(
                            [{"Name": "checkpoints", "OutputUri": job.checkpoints.as_uri() + "/"}]
                            if job.checkpoints
                            else []
                        ),
                    ],
                }
            )
            record.from_source(RecordSource(lists_all=True))
            return record

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        job = self.jobs[job_id]
        for step, value in enumerate(job.curve[: job.seen], 1):
            if name in (None, "loss"):
                yield MetricPoint(name="loss", step=step, value=value)

    def stop(self, job_id: str) -> None:
        self.calls.append(f"stop {job_id}")
        if self.jobs[job_id].status == "Running":
            self.jobs[job_id].status = "Terminated"


@dataclass
class FakeSession:
    """A session on these jobs."""

    backend: FakeJobs
    settings: Any = field(default_factory=lambda: SimpleNamespace(workspace_id="123", region_id="cn-x", prices={}))

    def backend_for(self, instance_type: str | None, api: str | None = None) -> FakeJobs:
        return self.backend

    def files(self) -> Any:
        return SimpleNamespace(list=lambda *_, **__: iter(()))

    def get_job(self, job_id: str) -> TrainingJob:
        return TrainingJob(job_id, self.backend, record=self.backend.get(job_id))

    def submit(self, plan: Plan, *, instance_type: str | None = None) -> TrainingJob:
        resume = plan.resume
        prepare = (lambda: None) if resume is None else (lambda: resume.copy_to_target(self))
        return TrainingJob(submit(plan, self.backend, prepare=prepare), self.backend)
