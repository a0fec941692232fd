"""Training jobs on the wire."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pai_sdk.api.paging import number_of, pages
from pai_sdk.api.responses import read_item, read_items, read_model
from pai_sdk.api.transport import Answer, Transport
from pai_sdk.errors import BadAnswerError
from pai_sdk.schemas.record import ErrorInfo, InstanceMetrics, JobRecord, MetricPoint

__all__ = ["BEGINNING", "VERSION", "Changed", "JobPage", "TrainingJobs"]

logger = logging.getLogger(__name__)

_Page: TypeAlias = list[Any]

VERSION = "2022-01-12"
BEGINNING = "2018-01-01T00:00:00Z"
"""Before PAI; as the start of a list it turns the service's window of 7 days off."""

# A page may have no new jobs, and the next one some. After this many in a row the list has no end.
_MOST_WITHOUT_NEWS = 5
_JOBS = "/api/v1/trainingjobs"
_JOB = _JOBS + "/{training_job_id}"
_TERMINALS = _JOB + "/instances/{instance_id}/webterminals"


@dataclass(frozen=True)
class Changed:
    """The answer of ListTrainingJobChanges: the jobs that have changed, as `get` shows them, and ids of no job."""

    records: list[JobRecord]
    missing: list[str]


@dataclass(frozen=True)
class JobPage:
    """A page of a list of jobs, and how many jobs the list has in all, where the service says so."""

    records: list[JobRecord]
    total: int | None


class TrainingJobs:
    """The actions on training jobs, one method each.

    Args:
        transport: to the PAI API, version `VERSION`.

    Attributes:
        offers_changes: whether the service has announced the action of `changes`.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.offers_changes = False

    def create_once(self, body: Mapping[str, Any], *, answer_s: float | None = None) -> str:
        """CreateTrainingJob, sent again only when it cannot have arrived; `submission.create` does the rest.

        Args:
            body: the request.
            answer_s: how long the answer may take, in seconds; as for any other call when not given.
        """
        connect_s, silence_s = self.transport.timeout_s
        answer = self.transport.call(
            "CreateTrainingJob",
            "POST",
            _JOBS,
            body=body,
            idempotent=False,
            timeout_s=(connect_s, silence_s if answer_s is None else answer_s),
            final_codes=("SignatureNonceUsed",),  # the create has arrived, and must not be sent again
        )
        job_id = answer.json.get("TrainingJobId")
        if not isinstance(job_id, str) or not job_id:
            raise BadAnswerError(
                "CreateTrainingJob: the answer has no TrainingJobId",
                status_code=answer.status_code,
                request_id=answer.request_id,
            )
        notices = answer.json.get("Notices")  # of the embedded service; Alibaba Cloud's has no such field
        for notice in notices if isinstance(notices, list) else ():
            logger.warning("job %s: %s", job_id, notice)
        return job_id

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """GetTrainingJob.

        Args:
            job_id: the job.
            changed_from: a snapshot; the same object is returned when the job has not changed.
            wait_s: long poll: the service may delay its response so long for a change, if it offers this.
        """
        headers: dict[str, str] = {}
        timeout_s = self.transport.timeout_s
        if changed_from is not None and changed_from._etag:
            headers["If-None-Match"] = changed_from._etag
            if changed_from._may_wait:
                headers.update(prefer_wait(wait_s))
                timeout_s = read_timeout(timeout_s, wait_s)
        answer = self.transport.call(
            "GetTrainingJob", "GET", _JOB, {"training_job_id": job_id}, headers=headers, timeout_s=timeout_s
        )
        if answer.status_code == 304 and changed_from is not None:
            return changed_from
        # Without the id of the request, which would make each snapshot differ from the one before.
        content = {name: value for name, value in answer.json.items() if name != "RequestId"}
        record = read_model(JobRecord, {"TrainingJobId": job_id, **content}, answer, "GetTrainingJob")
        return self._marked(record, offers_of(answer), answer.headers.get("ETag"))

    def changes(self, known: Mapping[str, str | None], *, wait_s: float = 0.0) -> Changed:
        """ListTrainingJobChanges, an action of the embedded service: the jobs that differ from what is known.

        Args:
            known: job id to the ETag of the snapshot that is known, or None.
            wait_s: long poll: an answer without news may be delayed so long.
        """
        action, body = "ListTrainingJobChanges", {"Known": {key: tag or "" for key, tag in known.items()}}
        answer = self.transport.call(
            action,
            "POST",
            _JOBS + "/changes",
            body=body,
            idempotent=True,
            headers=prefer_wait(wait_s),
            timeout_s=read_timeout(self.transport.timeout_s, wait_s),
        )
        offers, tags = offers_of(answer), answer.json.get("ETags")
        tags = tags if isinstance(tags, dict) else {}
        found = read_items(JobRecord, [answer.json.get("TrainingJobs") or []], action)
        records = [self._marked(record, offers, tags.get(record.training_job_id)) for record in found]
        missing = answer.json.get("Missing")
        return Changed(records, [str(job_id) for job_id in missing] if isinstance(missing, list) else [])

    def _marked(self, record: JobRecord, offers: frozenset[str], etag: str | None) -> JobRecord:
        """A snapshot with what the service has announced beside it."""
        self.offers_changes = "changes" in offers
        record._etag = etag
        record._lists_all, record._may_wait = "all-instances" in offers, "wait" in offers
        record._reads_reports = "reported-metrics" in offers
        return record

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        workspace_id: str | None = None,
        algorithm_name: str | None = None,
        algorithm_provider: str | None = None,
        is_temp_algo: bool | None = None,
        job_id: str | None = None,
        start_time: str | None = BEGINNING,
        end_time: str | None = None,
        newest_first: bool = True,
        page_size: int = 100,
    ) -> Iterator[JobRecord]:
        """ListTrainingJobs, all pages; a job that slips onto a second page while others are created comes once.

        Args:
            status: only jobs in this status.
            name: only jobs with this text in their name.
            labels: only jobs that have all of these.
            workspace_id: only jobs of this workspace.
            algorithm_name: only jobs of this registered algorithm.
            algorithm_provider: only jobs of algorithms of this provider.
            is_temp_algo: only jobs with (or without) an algorithm of their own.
            job_id: only this one.
            start_time: created from here on; None leaves it to the service, which takes 7 days.
            end_time: created until then.
            newest_first: the order.
            page_size: items in a page.
        """
        query = {
            "Status": status,
            "TrainingJobName": name,
            "Labels": dict(labels) if labels else None,
            "WorkspaceId": workspace_id,
            "AlgorithmName": algorithm_name,
            "AlgorithmProvider": algorithm_provider,
            "IsTempAlgo": is_temp_algo,
            "TrainingJobId": job_id,
            "StartTime": start_time,
            "EndTime": end_time,
            "SortBy": "GmtCreateTime",
            "Order": "DESC" if newest_first else "ASC",
        }
        seen: set[str] = set()
        without_news = 0
        for page in self._pages("ListTrainingJobs", _JOBS, {}, query, "TrainingJobs", page_size):
            known = len(seen)
            for item in page:
                record = read_item(JobRecord, item, "ListTrainingJobs")
                if record is not None and record.training_job_id not in seen:
                    seen.add(record.training_job_id)
                    yield record
            without_news = without_news + 1 if len(seen) == known else 0
            if without_news == _MOST_WITHOUT_NEWS:
                return

    def list_page(
        self, number: int, *, workspace_id: str | None = None, start_time: str = BEGINNING, page_size: int = 100
    ) -> JobPage:
        """ListTrainingJobs, one page, the newest jobs first.

        Args:
            number: of the page, from 1.
            workspace_id: only jobs of this workspace.
            start_time: created from here on.
            page_size: items in a page; the service may give fewer.
        """
        query = {
            "WorkspaceId": workspace_id,
            "StartTime": start_time,
            "SortBy": "GmtCreateTime",
            "Order": "DESC",
            "PageNumber": number,
            "PageSize": page_size,
        }
        action = "ListTrainingJobs"
        answer = self.transport.call(action, "GET", _JOBS, query=query)
        self.offers_changes = "changes" in offers_of(answer)
        records = [*read_items(JobRecord, [answer.json.get("TrainingJobs") or []], action)]
        return JobPage(records, number_of(answer.json.get("TotalCount")))

    def stop(self, job_id: str) -> None:
        """StopTrainingJob."""
        self._on_job("StopTrainingJob", "PUT", job_id, "/stop")

    def delete(self, job_id: str) -> None:
        """DeleteTrainingJob."""
        self._on_job("DeleteTrainingJob", "DELETE", job_id)

    def metrics(self, job_id: str, *, name: str | None = None, oldest_first: bool = True) -> Iterator[MetricPoint]:
        """ListTrainingJobMetrics, all pages."""
        query = {"Name": name, "Order": "ASC" if oldest_first else "DESC"}
        found = self._pages(
            "ListTrainingJobMetrics", _JOB + "/metrics", {"training_job_id": job_id}, query, "Metrics", 100
        )
        return read_items(MetricPoint, found, "ListTrainingJobMetrics")

    def latest_metrics(self, job_id: str, names: Sequence[str] = ()) -> Sequence[MetricPoint]:
        """GetTrainingJobLatestMetrics: the last value of each metric, or of those named."""
        action = "GetTrainingJobLatestMetrics"
        answer = self._on_job(action, "GET", job_id, "/latestmetrics", {"Names": ",".join(names) or None})
        return [*read_items(MetricPoint, [answer.json.get("Metrics") or []], action)]

    def events(self, job_id: str, *, start_time: str | None = None, end_time: str | None = None) -> Sequence[str]:
        """ListTrainingJobEvents, all pages."""
        query = {"StartTime": start_time, "EndTime": end_time}
        params = {"training_job_id": job_id}
        found = self._pages("ListTrainingJobEvents", _JOB + "/events", params, query, "Events", 100)
        return [str(event) for page in found for event in page]

    def instance_events(self, job_id: str, instance: str) -> Sequence[str]:
        """ListTrainingJobInstanceEvents, all pages."""
        params = {"training_job_id": job_id, "instance_id": instance}
        path = _JOB + "/instances/{instance_id}/events"
        found = self._pages("ListTrainingJobInstanceEvents", path, params, {}, "Events", 100)
        return [str(event) for page in found for event in page]

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """GetTrainingJobErrorInfo, or None when there is no error."""
        action = "GetTrainingJobErrorInfo"
        answer = self._on_job(action, "GET", job_id, "/errorinfo")
        info = read_item(ErrorInfo, answer.json.get("ErrorInfo") or {}, action)
        return info if info is not None and (info.code or info.message) else None

    def output_models(self, job_id: str) -> Sequence[Mapping[str, Any]]:
        """ListTrainingJobOutputModels, as the service describes them."""
        answer = self._on_job("ListTrainingJobOutputModels", "GET", job_id, "/outputmodels")
        return [model for model in answer.json.get("OutputModels") or [] if isinstance(model, dict)]

    def instance_metrics(
        self,
        job_id: str,
        metric: str,
        *,
        instance: str | None = None,
        start_time: str | None = None,
        end_time: str | None = None,
        time_step: str | None = None,
    ) -> Sequence[InstanceMetrics]:
        """ListTrainingJobInstanceMetrics: what each instance uses of its machine.

        Args:
            job_id: which job.
            metric: `CpuCoreUsage`, `MemoryUsage`, `GpuCoreUsage`, `GpuMemoryUsage`, `DiskReadRate`,
                `DiskWriteRate`, `NetworkInputRate` or `NetworkOutputRate`.
            instance: only this one.
            start_time: from here on.
            end_time: until then.
            time_step: the time between two values: `10s`, `5m`, `30m`, `1h`.
        """
        action = "ListTrainingJobInstanceMetrics"
        query = {
            "MetricType": metric,
            "InstanceId": instance,
            "StartTime": start_time,
            "EndTime": end_time,
            "TimeStep": time_step,
        }
        answer = self._on_job(action, "GET", job_id, "/instancemetrics", query).json
        # The build of the client that alipai carries spells it in another way.
        found = answer.get("InstanceMetrics") or answer.get("Instancemetrics") or []
        return [*read_items(InstanceMetrics, [found], action)]

    def token(self, job_id: str | None = None, *, expire_time_s: int | None = None) -> str | None:
        """GetToken: a temporary token to view one job, or all jobs."""
        query = {"TrainingJobId": job_id, "ExpireTime": expire_time_s}
        token = self.transport.call("GetToken", "GET", "/api/v1/tokens", query=query).json.get("Token")
        return None if token is None else str(token)

    def create_web_terminal(self, job_id: str, instance: str) -> str | None:
        """CreateInstanceWebTerminal: the id of a terminal in a running instance."""
        params = {"training_job_id": job_id, "instance_id": instance}
        answer = self.transport.call("CreateInstanceWebTerminal", "POST", _TERMINALS, params)
        terminal = answer.json.get("WebTerminalId")
        return None if terminal is None else str(terminal)

    def check_web_terminal(self, job_id: str, instance: str, check_info: str) -> None:
        """CheckInstanceWebTerminal: whether a terminal can still be used."""
        params = {"training_job_id": job_id, "instance_id": instance}
        body = {"CheckInfo": check_info}
        path = _TERMINALS + "/action/check"
        self.transport.call("CheckInstanceWebTerminal", "POST", path, params, body=body, idempotent=True)

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """UpdateTrainingJobLabels: add or replace."""
        body = {"Labels": [{"Key": key, "Value": value} for key, value in labels.items()]}
        self.transport.call(
            "UpdateTrainingJobLabels",
            "POST",
            _JOB + "/labels",
            {"training_job_id": job_id},
            body=body,
            idempotent=True,  # the same labels twice are the same labels
        )

    def delete_labels(self, job_id: str, keys: Sequence[str]) -> None:
        """DeleteTrainingJobLabels."""
        self._on_job("DeleteTrainingJobLabels", "DELETE", job_id, "/labels", {"Keys": ",".join(keys)})

    def _on_job(
        self, action: str, method: str, job_id: str, path: str = "", query: Mapping[str, Any] | None = None
    ) -> Answer:
        return self.transport.call(action, method, _JOB + path, {"training_job_id": job_id}, query)

    def _pages(
        self,
        action: str,
        path: str,
        params: Mapping[str, str],
        query: Mapping[str, Any],
        items: str,
        page_size: int,
    ) -> Iterator[_Page]:
        def fetch(number: int, size: int) -> Mapping[str, Any]:
            paged = {**query, "PageNumber": number, "PageSize": size}
            return self.transport.call(action, "GET", path, params, paged).json

        return pages(fetch, items, page_size=page_size)


def offers_of(answer: Answer) -> frozenset[str]:
    """What the service can do beyond PAI's API; only services of this package announce such offers.

    Example:
        >>> sorted(offers_of(Answer({}, headers={"x-pai-offers": "wait, first-line"})))
        ['first-line', 'wait']
    """
    return frozenset(offer.strip() for offer in answer.headers.get("x-pai-offers", "").lower().split(",")) - {""}


def prefer_wait(wait_s: float) -> dict[str, str]:
    """The header for a long poll, in whole seconds, rounded down."""
    return {"Prefer": f"wait={int(wait_s)}"} if wait_s >= 1 else {}


def read_timeout(timeout_s: tuple[float, float], wait_s: float) -> tuple[float, float]:
    """Timeouts for a long poll."""
    return timeout_s[0], timeout_s[1] + max(wait_s, 0.0)
