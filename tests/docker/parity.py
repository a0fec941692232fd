"""One place where a job can run, and what a user sees of the job there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pai_sdk import Estimator, Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.reasons import image_unused_message
from pai_sdk.errors import JobFailed, JobStopped, StorageError
from tests.docker.engine import BASE_IMAGE
from tests.support.waiting import PATIENCE_S

__all__ = ["Case", "Place", "Seen"]


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        command: what runs.
        more: parameters of the estimator; `resumes` has it go on from earlier checkpoints.
        act: what its user does while it runs.
        inputs: its input channels.
        ends: the reason that it ends with; None for a success.
    """

    command: str | Sequence[str]
    more: Mapping[str, Any] = field(default_factory=dict)
    act: Callable[[TrainingJob], None] = lambda job: None
    inputs: Mapping[str, Path] = field(default_factory=dict)
    ends: str | None = None


@dataclass
class Seen:
    """What a user sees of a job that has ended, with its id as `JOB`."""

    status: str
    reason_code: str | None
    reason_message: str | None
    passed: list[str]
    instances: list[list[str]]
    logs: dict[str, list[str]]
    error: str
    exit_code: int | None
    error_info: dict[str, Any]
    labels: dict[str, str]
    metrics: list[list[Any]]
    outputs: dict[str, dict[str, list[Any]]]


@dataclass(frozen=True)
class Place:
    """Where jobs run.

    Attributes:
        name: `process`, `docker` or `local`.
        session: submits them there.
        folder: for what they leave.
        checkpoints: where those of earlier jobs lie.
    """

    name: str
    session: Session
    folder: Path
    checkpoints: str

    def run(self, name: str, case: Case, code: Path) -> Seen:
        """Run a job to its end."""
        more = dict(case.more)
        if self.name == "local":
            more["instance_type"] = "local"
        elif "instance_spec" in more:
            more["resource_id"] = "quota"
        else:
            more["instance_type"] = "ecs.c6.large"
        if more.pop("resumes", False):
            more["checkpoints_path"] = self.checkpoints
        estimator = Estimator(BASE_IMAGE, case.command, source_dir=code, session=self.session, **more)
        job = estimator.fit(case.inputs, wait=False, show_logs=False, job_name=f"parity-{name}")
        case.act(job)
        error: Exception | None = None
        try:
            job.wait(2 * PATIENCE_S, show_logs=False)
        except (JobFailed, JobStopped, StorageError) as ended:
            error = ended
        return self._seen(job, error)

    def _seen(self, job: TrainingJob, error: Exception | None) -> Seen:
        record, info = job.record, job.error_info()
        logs: dict[str, list[str]] = {name: [] for name in record.instance_names}
        for line in job.logs():
            logs[line.instance].append(line.text)
        seen = Seen(
            str(record.status),
            record.reason_code,
            record.reason_message,
            [str(one.status) for one in record.status_transitions],
            [[one.name or "", str(one.status)] for one in record.instances],
            logs,
            str(error or ""),
            getattr(error, "exit_code", None),
            {key: value or None for key, value in info.model_dump().items()} if info else {},
            {name: value for name, value in job.labels.items() if not name.startswith("pai-sdk")},
            [[point.name, point.value, point.step, point.instance] for point in job.metrics()],
            {channel: self._fetched(job, channel) for channel in ("model", "checkpoints")},
        )
        # Processes of a service use no image, and a reason says so where a program or a module is missing.
        without_image = json.dumps(asdict(seen)).replace(f" {image_unused_message(BASE_IMAGE)}", "")
        return Seen(**json.loads(without_image.replace(job.id, "JOB")))

    def _fetched(self, job: TrainingJob, channel: str) -> dict[str, list[Any]]:
        """The files of an output: what is in each, and whether it can be executed."""
        fetched = self.folder / job.id / channel
        try:
            job.download(channel, fetched, progress=False)
        except StorageError as error:  # without the path, which is another in each place
            return {"StorageError": re.findall(r"wrote nothing to its output '\w+'", str(error)) or [str(error)]}
        files = [path for path in sorted(fetched.rglob("*")) if path.is_file()]
        return {str(path.relative_to(fetched)): [path.read_text(), os.access(path, os.X_OK)] for path in files}
