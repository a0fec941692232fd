"""Jobs of DLC on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pai_sdk._client.api.resource import Resource, number_of
from pai_sdk._client.api.responses import ApiResponse
from pai_sdk._wire.base import TOTAL_COUNT, items_key, wire_names
from pai_sdk._wire.body import Body, Query, received
from pai_sdk._wire.dlc.actions import ACTIONS, API_VERSION
from pai_sdk._wire.dlc.jobs import JobQuery, JobReference, JobUpdate, NewJob
from pai_sdk._wire.dlc.limits import PAGE_SIZES
from pai_sdk._wire.dlc.logs import EventQuery, JobEvents, PodEvents, PodLogQuery, PodLogs
from pai_sdk._wire.dlc.metrics import JobMetrics, JobMetricsQuery
from pai_sdk._wire.dlc.records import JobDetail, JobItem, JobList
from pai_sdk._wire.dlc.resources.ecs_specs import EcsSpec, EcsSpecList, EcsSpecQuery
from pai_sdk._wire.dlc.resources.tags import NewTags, Tag
from pai_sdk.errors import InvalidResponseError

__all__ = ["BEGINNING", "VERSION", "DlcJobs", "ItemPage"]

VERSION = API_VERSION
BEGINNING = "1970-01-01T00:00:00Z"
"""As the start of a list it turns the service's window of 7 days off."""

_MAX_PAGE_SIZE = PAGE_SIZES[-1]
# A page may have no new jobs, and the next one some. After so many in a row, the service ignores page numbers.
_MAX_PAGES_WITHOUT_NEW = 5


@dataclass(frozen=True)
class ItemPage:
    """A page of ListJobs, and how many jobs the list has in all, where the service says so."""

    items: list[JobItem]
    total: int | None


class DlcJobs(Resource):
    """The actions on jobs of DLC, one method each. The transport is that of DLC, version `VERSION`."""

    def create_once(
        self, body: NewJob | Mapping[str, Any], *, response_timeout_s: float | None = None
    ) -> JobReference:
        """Sends CreateJob, again only if it cannot have arrived: DLC recognises no repeated request."""
        connect_s, silence_s = self._transport.timeout_s
        response = self._send(
            "CreateJob",
            body=body.to_wire() if isinstance(body, NewJob) else body,
            idempotent=False,
            # None: as for any other call.
            timeout_s=(connect_s, silence_s if response_timeout_s is None else response_timeout_s),
            final_codes=("SignatureNonceUsed",),  # the create has arrived, and must not be sent again
        )
        created = received(JobReference, response.json)
        if not created.job_id:
            raise InvalidResponseError(
                "CreateJob: the response has no JobId",
                status_code=response.status_code,
                request_id=response.request_id,
            )
        return created

    def get(self, job_id: str) -> JobDetail:
        """Calls GetJob."""
        detail = received(JobDetail, self.get_body(job_id))
        # Without the id of the request, which would make each snapshot differ from the one before.
        return detail.model_copy(update={"job_id": detail.job_id or job_id, "request_id": None})

    def get_body(self, job_id: str) -> dict[str, Any]:
        """Calls GetJob; returns the response as it is, with empty values."""
        return self._send("GetJob", job_id=job_id).json

    def list(
        self, query: JobQuery | None = None, *, page_size: int = _MAX_PAGE_SIZE, skip: int = 0
    ) -> Iterator[JobItem]:
        """Calls ListJobs, all pages; each job once, even if new jobs move it to a second page.

        Without a `start_time` in the query, the service lists the last 7 days.
        """
        job_ids: set[str] = set()
        without_new = 0
        for page in self._list_pages(JobList, "ListJobs", query or JobQuery(), page_size=page_size, skip=skip):
            num_before = len(job_ids)
            for item in _items(page):
                if item.job_id not in job_ids:
                    job_ids.add(item.job_id or "")
                    yield item
            without_new = without_new + 1 if len(job_ids) == num_before else 0
            if without_new == _MAX_PAGES_WITHOUT_NEW:
                return

    def list_page(
        self, number: int, query: JobQuery | None = None, *, page_size: int = _MAX_PAGE_SIZE
    ) -> ItemPage:
        """Calls ListJobs, page `number` (from 1); it may be shorter than `page_size`."""
        paging = wire_names(page_number=number, page_size=page_size)
        content = self._send("ListJobs", query={**(query or JobQuery()).to_query(), **paging}).json
        return ItemPage(_items(content.get(items_key(JobList))), number_of(content.get(TOTAL_COUNT)))

    def update(self, job_id: str, body: JobUpdate) -> None:
        """Calls UpdateJob. The service responds with success also where a change has no effect."""
        self._send("UpdateJob", job_id=job_id, body=body.to_wire())

    def stop(self, job_id: str) -> None:
        """Calls StopJob; a job that has ended is an `InvalidRequestError`."""
        self._send("StopJob", job_id=job_id, idempotent=True)  # a second delivery changes nothing

    def delete(self, job_id: str) -> None:
        """Calls DeleteJob."""
        self._send("DeleteJob", job_id=job_id)

    def pod_logs(self, job_id: str, pod_id: str, query: PodLogQuery | None = None) -> PodLogs:
        """Calls GetPodLogs: lines of a window of time, without their times."""
        return self.pod_logs_and_end(job_id, pod_id, query)[0]

    def pod_logs_and_end(self, job_id: str, pod_id: str, query: PodLogQuery | None = None) -> tuple[PodLogs, bool]:
        """Calls GetPodLogs; returns also whether the service says that no line will follow."""
        response = self._send("GetPodLogs", query, job_id=job_id, pod_id=pod_id)
        is_end = response.headers.get("x-pai-log-complete", "").lower() == "true"
        return received(PodLogs, response.json), is_end

    def pod_events(self, job_id: str, pod_id: str, query: EventQuery | None = None) -> Sequence[str]:
        """Calls GetPodEvents."""
        return received(PodEvents, self._send("GetPodEvents", query, job_id=job_id, pod_id=pod_id).json).events

    def events(self, job_id: str, query: EventQuery | None = None) -> Sequence[str]:
        """Calls GetJobEvents."""
        return received(JobEvents, self._send("GetJobEvents", query, job_id=job_id).json).events

    def metrics(self, job_id: str, query: JobMetricsQuery) -> JobMetrics:
        """Calls GetJobMetrics: values of one kind by pod."""
        return received(JobMetrics, self._send("GetJobMetrics", query, job_id=job_id).json)

    def ecs_specs(self, query: EcsSpecQuery | None = None) -> Iterator[EcsSpec]:
        """Calls ListEcsSpecs, all pages."""
        for page in self._list_pages(EcsSpecList, "ListEcsSpecs", query or EcsSpecQuery()):
            yield from (received(EcsSpec, each) for each in page)

    def tag(self, job_id: str, tags: Sequence[Tag]) -> None:
        """Calls TagResources: adds or replaces tags of a job."""
        body = NewTags(resource_type="Job", resource_id=[job_id], tag=list(tags))
        self._send("TagResources", body=body.to_wire(), idempotent=True)  # a second delivery sets the same tags

    def _list_pages(self, model: type[Body], name: str, query: Query, **options: Any) -> Iterator[Sequence[Any]]:
        """Calls an action that lists, page by page."""
        return self._pages(model, name, ACTIONS[name].path, query=query.to_query(), **options)

    def _send(
        self, name: str, query: Query | Mapping[str, Any] | None = None, *, body: Any = None, **options: Any
    ) -> ApiResponse:
        """Calls an action; `job_id` and `pod_id` are parts of its path."""
        ids: dict[str, str] = {key: options.pop(key) for key in ("job_id", "pod_id") if key in options}
        action = ACTIONS[name]
        parameters = query.to_query() if isinstance(query, Query) else query
        return self._call(name, action.method, action.path, ids, parameters, body=body, **options)


def _items(page: Any) -> list[JobItem]:
    """Reads the jobs of a page; entries without an id are left out."""
    items = [received(JobItem, each) for each in page or () if isinstance(each, Mapping)]
    return [item for item in items if item.job_id]
