"""Training jobs on the wire."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pai_sdk._client.api.resource import Resource, number_of
from pai_sdk._client.api.responses import ApiResponse, read_item, read_items, read_model
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.base import TOTAL_COUNT, items_key, wire_names
from pai_sdk._wire.notifications import OFFER as NOTIFICATIONS_OFFER
from pai_sdk._wire.pai.record import (
    ErrorInfo,
    InstanceMetrics,
    InstancePoint,
    JobRecord,
    MetricPoint,
    RecordSource,
)
from pai_sdk._wire.pai.spec import Label
from pai_sdk._wire.training_jobs import (
    ChangedJobs,
    ChangesRequest,
    CreatedJob,
    EventList,
    InstanceMetricsList,
    JobErrorInfo,
    JobLabels,
    JobList,
    MetricsList,
)
from pai_sdk.errors import InvalidResponseError

logger = logging.getLogger(__name__)

VERSION = "2022-01-12"
BEGINNING = "2018-01-01T00:00:00Z"
"""Before PAI; as the start of a list it turns the service's window of 7 days off."""

# A page may have no new jobs, and the next one some. After so many in a row, the service ignores page numbers.
_MAX_PAGES_WITHOUT_NEW = 5
_JOBS = "/api/v1/trainingjobs"
_JOB = _JOBS + "/{training_job_id}"


@dataclass(frozen=True)
class Changed:
    """The response of ListTrainingJobChanges: changed jobs, as `get` shows them, and ids without a job."""

    records: list[JobRecord]
    missing: list[str]


@dataclass(frozen=True)
class JobPage:
    """A page of a list of jobs, and how many jobs the list has in all, where the service says so."""

    records: list[JobRecord]
    total: int | None


class TrainingJobs(Resource):
    """The actions on training jobs, one method each. The transport is that of the PAI API, version `VERSION`."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        # True after the service has announced the action of `changes`.
        self.offers_changes = False
        # Likewise, that the service sends messages about its jobs. Not by `Transport.offers`: those of the last
        # response of any action, such as a page of a log in another thread, have fewer offers.
        self.offers_notifications = False

    def create_once(self, body: Mapping[str, Any], *, response_timeout_s: float | None = None) -> str:
        """Sends CreateTrainingJob, again only if it cannot have arrived; `_client.submission` does the rest."""
        connect_s, silence_s = self._transport.timeout_s
        response = self._transport.call(
            "CreateTrainingJob",
            "POST",
            _JOBS,
            body=body,
            idempotent=False,
            # None: as for any other call.
            timeout_s=(connect_s, silence_s if response_timeout_s is None else response_timeout_s),
            final_codes=("SignatureNonceUsed",),  # the create has arrived, and must not be sent again
        )
        created = read_item(CreatedJob, response.json, "CreateTrainingJob")
        if created is None or not created.training_job_id:
            raise InvalidResponseError(
                "CreateTrainingJob: the response has no TrainingJobId",
                status_code=response.status_code,
                request_id=response.request_id,
            )
        for notice in created.notices or ():
            logger.warning("job %s: %s", created.training_job_id, notice)
        return created.training_job_id

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """Calls GetTrainingJob; returns `changed_from` itself when the job equals that snapshot.

        With a service that offers long polls, the response to an unchanged snapshot may take `wait_s` longer.
        """
        headers: dict[str, str] = {}
        timeout_s = self._transport.timeout_s
        if changed_from is not None and changed_from.source.etag:
            headers["If-None-Match"] = changed_from.source.etag
            if changed_from.source.may_wait:
                headers.update(prefer_wait(wait_s))
                timeout_s = read_timeout(timeout_s, wait_s)
        response = self._transport.call(
            "GetTrainingJob", "GET", _JOB, {"training_job_id": job_id}, headers=headers, timeout_s=timeout_s
        )
        if response.status_code == 304 and changed_from is not None:
            return changed_from
        # Without the id of the request, which would make each snapshot differ from the one before.
        content = {name: value for name, value in response.json.items() if name != "RequestId"}
        record = read_model(JobRecord, response, content, training_job_id=job_id)
        return self._marked(record, offers_of(response), response.headers.get("ETag"))

    def changes(self, etags_by_job: Mapping[str, str | None], *, wait_s: float = 0.0) -> Changed:
        """ListTrainingJobChanges of the embedded service: jobs that differ from snapshots, given by their ETags.

        A job without a snapshot has the ETag None. The service may delay a response without changes by `wait_s`.
        """
        action = "ListTrainingJobChanges"
        response = self._transport.call(
            action,
            "POST",
            _JOBS + "/changes",
            body=ChangesRequest(known={job_id: tag or "" for job_id, tag in etags_by_job.items()}).to_wire(),
            idempotent=True,
            headers=prefer_wait(wait_s),
            timeout_s=read_timeout(self._transport.timeout_s, wait_s),
        )
        # The jobs are read one by one, so that one that cannot be read does not hide the others.
        key = items_key(ChangedJobs)
        fields = {name: value for name, value in response.json.items() if name != key}
        offers, changed = offers_of(response), read_model(ChangedJobs, response, fields)
        etags = changed.etags or {}
        records = [
            self._marked(record, offers, etags.get(record.training_job_id))
            for record in read_items(JobRecord, [response.json.get(key) or []], action)
        ]
        return Changed(records, changed.missing)

    def _record_offers(self, offers: frozenset[str]) -> None:
        self.offers_changes = "changes" in offers
        self.offers_notifications = NOTIFICATIONS_OFFER in offers

    def _marked(self, record: JobRecord, offers: frozenset[str], etag: str | None) -> JobRecord:
        """Sets the offers of the service and the ETag of a snapshot."""
        self._record_offers(offers)
        return record.from_source(
            RecordSource(etag, "all-instances" in offers, "wait" in offers, "reported-metrics" in offers)
        )

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
        skip: int = 0,
    ) -> Iterator[JobRecord]:
        """Calls ListTrainingJobs, all pages; each job once, even if new jobs move it to a second page.

        Args:
            status: only jobs in this status.
            name: only jobs with this string in their name.
            labels: only jobs that have all of these.
            workspace_id: only jobs of this workspace.
            algorithm_name: only jobs of this registered algorithm.
            algorithm_provider: only jobs of algorithms of this provider.
            is_temp_algo: True for jobs with an algorithm of their own, False for jobs of registered ones.
            job_id: only this job.
            start_time: created from this time on; None means the default of the service, 7 days.
            end_time: created until this time.
            newest_first: the order.
            page_size: jobs per page.
            skip: number of first jobs to leave out; their pages are not requested.
        """
        query = wire_names(
            status=status,
            training_job_name=name,
            labels=dict(labels) if labels else None,
            workspace_id=workspace_id,
            algorithm_name=algorithm_name,
            algorithm_provider=algorithm_provider,
            is_temp_algo=is_temp_algo,
            training_job_id=job_id,
            start_time=start_time,
            end_time=end_time,
            sort_by="GmtCreateTime",
            order="DESC" if newest_first else "ASC",
        )
        job_ids: set[str] = set()
        without_new = 0
        for page in self._pages(JobList, "ListTrainingJobs", _JOBS, query=query, page_size=page_size, skip=skip):
            num_before = len(job_ids)
            for item in page:
                record = read_item(JobRecord, item, "ListTrainingJobs")
                if record is not None and record.training_job_id not in job_ids:
                    job_ids.add(record.training_job_id)
                    yield record
            without_new = without_new + 1 if len(job_ids) == num_before else 0
            if without_new == _MAX_PAGES_WITHOUT_NEW:
                return

    def list_page(
        self, number: int, *, workspace_id: str | None = None, start_time: str = BEGINNING, page_size: int = 100
    ) -> JobPage:
        """Calls ListTrainingJobs, page `number` (from 1), newest first; it may be shorter than `page_size`."""
        query = wire_names(
            workspace_id=workspace_id,
            start_time=start_time,
            sort_by="GmtCreateTime",
            order="DESC",
            page_number=number,
            page_size=page_size,
        )
        action = "ListTrainingJobs"
        response = self._transport.call(action, "GET", _JOBS, query=query)
        self._record_offers(offers_of(response))
        records = [*read_items(JobRecord, [response.json.get(items_key(JobList)) or []], action)]
        return JobPage(records, number_of(response.json.get(TOTAL_COUNT)))

    def stop(self, job_id: str) -> None:
        """Calls StopTrainingJob."""
        self._on_job("StopTrainingJob", "PUT", job_id, "/stop")

    def delete(self, job_id: str) -> None:
        """Calls DeleteTrainingJob."""
        self._on_job("DeleteTrainingJob", "DELETE", job_id)

    def metrics(
        self,
        job_id: str,
        *,
        name: str | None = None,
        since: str | None = None,
        oldest_first: bool = True,
        page_size: int = 100,
    ) -> Iterator[MetricPoint]:
        """ListTrainingJobMetrics, all pages."""
        query = wire_names(name=name, start_time=since, order="ASC" if oldest_first else "DESC")
        names, params = (MetricPoint, MetricsList, "ListTrainingJobMetrics"), {"training_job_id": job_id}
        return self._list(*names, _JOB + "/metrics", params, query, page_size=page_size)

    def events(self, job_id: str, *, start_time: str | None = None, end_time: str | None = None) -> Sequence[str]:
        """ListTrainingJobEvents, all pages."""
        query = wire_names(start_time=start_time, end_time=end_time)
        params = {"training_job_id": job_id}
        event_pages = self._pages(EventList, "ListTrainingJobEvents", _JOB + "/events", params, query)
        return [str(event) for page in event_pages for event in page]

    def instance_metrics(
        self, job_id: str, metric: str, *, start_time: str, step: str
    ) -> dict[str, InstancePoint]:
        """ListTrainingJobInstanceMetrics: last points by instance; `step`: time of one value (`10s`)."""
        query = wire_names(metric_type=metric, start_time=start_time, time_step=step)
        action = "ListTrainingJobInstanceMetrics"
        response = self._on_job(action, "GET", job_id, "/instancemetrics", query)
        items = response.json.get(items_key(InstanceMetricsList))
        last: dict[str, InstancePoint] = {}
        for metrics in read_items(InstanceMetrics, [items if isinstance(items, list) else []], action):
            points = [point for point in metrics.metrics if point.value is not None]
            if metrics.instance_id and points:
                last[metrics.instance_id] = points[-1]
        return last

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """Calls GetTrainingJobErrorInfo; returns None when there is no error."""
        action = "GetTrainingJobErrorInfo"
        response = self._on_job(action, "GET", job_id, "/errorinfo")
        body = read_item(JobErrorInfo, response.json, action)
        info = body.error_info if body is not None else None
        return info if info is not None and (info.code or info.message) else None

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """UpdateTrainingJobLabels: add or replace."""
        body = JobLabels(labels=[Label(key=key, value=value) for key, value in labels.items()])
        self._transport.call(
            "UpdateTrainingJobLabels",
            "POST",
            _JOB + "/labels",
            {"training_job_id": job_id},
            body=body.to_wire(),
            idempotent=True,  # a second delivery sets the same labels
        )

    def _on_job(
        self, action: str, method: str, job_id: str, path: str = "", query: Mapping[str, Any] | None = None
    ) -> ApiResponse:
        return self._transport.call(action, method, _JOB + path, {"training_job_id": job_id}, query)


def offers_of(response: ApiResponse) -> frozenset[str]:
    """Returns the features beyond PAI's API that the service announces, as only those of this package do."""
    return frozenset(offer.strip() for offer in response.headers.get("x-pai-offers", "").lower().split(",")) - {""}


def prefer_wait(wait_s: float) -> dict[str, str]:
    """Returns the header for a long poll, in whole seconds, rounded down."""
    return {"Prefer": f"wait={int(wait_s)}"} if wait_s >= 1 else {}


def read_timeout(timeout_s: tuple[float, float], wait_s: float) -> tuple[float, float]:
    """Timeouts for a long poll."""
    return timeout_s[0], timeout_s[1] + max(wait_s, 0.0)
