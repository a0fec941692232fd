"""A backend in memory, whose jobs and faults a test scripts."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._client.api.responses import api_error
from pai_sdk._client.backend.base import JobChanges, Plan, Purpose
from pai_sdk._client.backend.specs import Capabilities
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.pai.record import ErrorInfo, InstanceUsage, JobRecord, LogPage, MetricPoint, RecordSource
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import CodeDir
from pai_sdk.errors import ConnectionFailedError, NotFoundError
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pai_sdk._client.tunnel.opening import JobTunnel
    from tests.support.fake_tunnel import FakeInstance

FAST = FollowPolicy(
    hold_s=0.2,
    pause_s=0.01,
    quiet_s=0.05,
    failed_quiet_s=0.05,
    patience_s=PATIENCE_S,
    retry=RetryPolicy(first_pause_s=0.002, longest_pause_s=0.01),
)


class FakeBackend:
    """One job whose log and status a test writes; `faults` is how often a call fails, from 0 to 1."""

    capabilities = Capabilities(retries=True)
    endpoint = "fake"
    dedupes = True
    retry = RetryPolicy()

    def __init__(self, *, says_complete: bool = True, faults: float = 0.0, seed: int = 0) -> None:
        self.says_complete = says_complete
        self.faults = faults
        self.lines: dict[str, list[str]] = {}
        self.status = "Running"
        self.info: ErrorInfo | None = None
        self.extra: dict[str, object] = {}
        self.on_read: Callable[[], None] = lambda: None
        self.says_times = False
        self.calls: list[str] = []
        self.used: list[InstanceUsage] = []
        self.instance: FakeInstance  # entered by tunnels
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def _maybe_fail(self) -> None:
        with self._lock:
            if self._random.random() >= self.faults:
                return
            kind = self._random.randrange(3)
        raise [
            ConnectionFailedError("reset", endpoint="fake"),
            api_error("slow down", code="Throttling.User", status_code=429, request_id="r", retry_after_s=0.001),
            api_error("oops", code="InternalError", status_code=500, request_id="r"),
        ][kind]

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        self._maybe_fail()
        record = JobRecord.model_validate(
            {
                "TrainingJobId": job_id,
                "TrainingJobName": "fake",
                "Status": self.status,
                "Instances": [{"Name": name, "Status": self.status} for name in self.lines],
                **self.extra,
            }
        )
        record.from_source(RecordSource(lists_all=self.says_complete))
        return record

    def changes(
        self, snapshots: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        return JobChanges({job_id: self.get(job_id) for job_id in snapshots})

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        self._maybe_fail()
        self.on_read()
        ended = self.status in ("Succeed", "Failed", "Terminated")  # before the lines: they only grow until then
        lines = self.lines[instance]
        page = tuple(lines[start : start + limit])
        complete = self.says_complete and ended and start + len(page) == len(lines)
        return LogPage(page, complete=complete, total=len(lines))

    def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> Sequence[str | None] | None:
        return (
            None
            if not self.says_times
            else [f"2026-11-22T05:00:{start + place:02}.000Z" for place in range(count)]
        )

    def usage(self, job_id: str) -> Sequence[InstanceUsage]:
        return self.used

    def connect_tunnel(self, job_id: str, instance: str) -> JobTunnel:
        from pai_sdk._client.tunnel.opening import JobTunnel

        self.calls.append(f"enter {instance}")
        return JobTunnel(self.instance.dial, job_id, instance)

    def error_info(self, job_id: str) -> ErrorInfo | None:
        return self.info

    def stop(self, job_id: str) -> None:
        self.calls.append("stop")
        self.status = "Terminated"

    def tree_uri(self, tree: FileTree, purpose: Purpose) -> str:
        return f"oss://bucket/pai/{purpose}/{tree.digest[:8]}/"

    def local_uri(self, path: Path, *, folder: bool) -> str | None:
        return None

    def code_dir(self, uri: str) -> CodeDir:
        return CodeDir.oss("bucket", uri.removeprefix("oss://bucket/"))

    def default_output(self, job_folder: str, channel: str) -> str:
        return f"oss://bucket/out/{job_folder}/{channel}/"

    def upload(self, plan: Plan, *, progress: bool = True) -> None:
        self.calls.append("upload")

    def find(self, request: TrainingJobRequest, *, of_any_age: bool = False) -> Sequence[str]:
        return ()

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        self.calls.append("create")
        self.submitted: TrainingJobRequest = plan.request
        return "train1"

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
        skip: int = 0,
    ) -> Iterator[JobRecord]:
        yield from [self.get("train1")][skip:]

    def delete(self, job_id: str) -> None:
        raise NotFoundError("gone", code="NotFound", status_code=404)

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        return iter(())

    def events(self, job_id: str) -> Sequence[str]:
        return ()

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        self.extra["Labels"] = [{"Key": key, "Value": value} for key, value in labels.items()]

    def store(self, uri: str) -> Store:
        return open_store(uri)

    def download(self, uri: str, target: Path, *, progress: bool = True) -> Path:
        self.calls.append(f"download {uri}")
        return target
