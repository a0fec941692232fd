"""The runs of a service, read over its API: the same requests and results as those of a `RunManager`.

An offer beyond PAI's API (`x-pai-offers: runs`): services of this package have it, Alibaba Cloud's has not.
Curves need numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pai_sdk._client.api.resource import Resource
from pai_sdk._client.api.responses import ApiResponse
from pai_sdk._client.api.training_jobs import offers_of
from pai_sdk._client.api.transport import Transport
from pai_sdk._data.run.watch.records import RunAnnotations, RunBrief, RunPage, RunReference, run_ids
from pai_sdk._wire.annotations import JobAnnotations
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.resources.queue import QueueState
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._data.run.events.series import Floats, Series, TagSummary
    from pai_sdk._data.run.plots.curve_view import Band, XAxis
    from pai_sdk._data.run.plots.drawing import Curve
    from pai_sdk._data.run.plots.figures import Comparison

_RUNS = "/api/v1/runs"
_OFFER = "runs"
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class ServiceRuns(Resource):
    """The runs of a service over HTTP; `session.runs`.

    Example:
        >>> [run.id for run in session.runs.list("status=Running", sort="metrics.loss").runs]  # doctest: +SKIP
        ['train-x7k2']
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._is_offered = False

    def is_offered(self) -> bool:
        """Returns True if the service has runs over HTTP; only the first call sends a request."""
        if not self._is_offered:
            response = self._transport.call(
                "ListTrainingJobs", "GET", "/api/v1/trainingjobs", query=wire_names(page_size=1)
            )
            self._is_offered = _OFFER in offers_of(response)
        return self._is_offered

    def list(
        self,
        filter: str = "",
        sort: str = "-updated",
        limit: int = 100,
        cursor: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> RunPage:
        """Returns a page of the briefs of runs; the arguments are those of `RunManager.runs`."""
        query = {"filter": filter, "sort": sort, "limit": limit, "cursor": cursor}
        if tags is not None:
            query["tags"] = json.dumps([*tags])
        response = self._call("ListRuns", "GET", _RUNS, query=query)
        with _Reading(response):
            names = response.json["tags"]
            briefs = tuple(_brief(row, names) for row in response.json["runs"])
            version = int(response.json["version"].rpartition(".")[2])
            # Earlier releases of the service do not count these.
            counts = response.json.get("statuses", {}), response.json.get("all", 0)
            return RunPage(briefs, response.json["next"], response.json["total"], version, *counts)

    def queue(self) -> QueueState:
        """Returns who holds what, who waits and why, with shares, quotas and capacity: the figures of the page.

        Administrators get all users and jobs, others what they can see. `NotFoundError` from an earlier release.
        """
        response = self._call("GetQueue", "GET", "/api/v1/queue")
        with _Reading(response):
            return QueueState.model_validate(response.json)

    def annotate(
        self,
        run: str | RunReference,
        *,
        star: bool | None = None,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        note: str | None = None,
        archived: bool | None = None,
    ) -> JobAnnotations:
        """Changes the star, the tags or the note of a job, or archives it, as the page does; returns all of them.

        Arguments that are left out change nothing. A star is the user's own. Who may change the job may change the
        rest, and all who see the job see it.

        Example:
            >>> session.runs.annotate(job, add_tags=["best"], note="lr 0.1 with warm-up").tags  # doctest: +SKIP
            ['best']
        """
        (run_id,) = run_ids([run])
        # An empty list would be a change, too, for which users who may only read are refused.
        tags = {"add_tags": [*add_tags] or None, "remove_tags": [*remove_tags] or None}
        changes = {"star": star, "note": note, "archived": archived, **tags}
        body = {name: value for name, value in changes.items() if value is not None}
        path = _RUNS + "/{run_id}/annotations"
        response = self._call("AnnotateRun", "PATCH", path, {"run_id": run_id}, body=body, idempotent=True)
        with _Reading(response):
            return JobAnnotations.model_validate(response.json)

    def scalars(self, run_id: str, tag: str) -> Series:
        """Returns all points of a metric; `NotFoundError` without the run or the metric."""
        import numpy as np

        from pai_sdk._data.run.events.series import Series

        # A run's id may have slashes; they are encoded as one part of the path here, and the service takes both.
        response = self._call(
            "GetRunScalars", "GET", _RUNS + "/{run_id}/scalars", {"run_id": run_id}, {"tag": tag}
        )
        with _Reading(response):
            step = np.array(response.json["steps"], np.int64)
            return Series(
                tag, np.array(response.json["walls"], np.float64), step, _values(response.json, "values")
            )

    def compare(
        self,
        runs: str | Iterable[str | RunReference],
        tag: str,
        x: XAxis | str = "step",
        start: float | None = None,
        end: float | None = None,
        buckets: int = 250,
        smooth: float = 0.0,
        group_by: Sequence[str] = (),
        band: Band | None = None,
    ) -> Comparison:
        """Returns a metric of many runs as curves over one x axis; for arguments see `RunManager.compare`."""
        body = {
            **({"filter": runs} if isinstance(runs, str) else {"runs": run_ids(runs)}),
            **{"tags": [tag], "x": x, "from": start, "to": end, "buckets": buckets, "smooth": smooth},
            **{"group_by": [*group_by], "band": band, "last": True},
        }
        response = self._call("CompareRuns", "POST", "/api/v1/compare", body=body, idempotent=True)
        with _Reading(response):
            return _comparison(response.json["comparisons"][0])

    def _call(self, *arguments: Any, **options: Any) -> ApiResponse:
        if not self.is_offered():
            hint = "read them where they are stored: RunManager(uri)"
            raise InvalidInputError([Problem("session", "the service does not support runs over HTTP", hint)])
        return super()._call(*arguments, **options)


class _Reading:
    """Raises `InvalidResponseError` where a field of a response is missing or has another form."""

    def __init__(self, response: ApiResponse) -> None:
        self._response = response

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)):
            reason = f"unexpected response ({type(error).__name__})"
            raise self._response.invalid(reason) from error


def _brief(row: Mapping[str, Any], tags: Sequence[str]) -> RunBrief:
    columns = {
        name: _full_list(row, name) for name in ("last", "min", "max", "step", "count", "nan") if name in row
    }
    numbers = [{name: values[at] for name, values in columns.items()} for at in range(len(tags))]
    summaries = [_summary(tag, figures) for tag, figures in zip(tags, numbers, strict=True)]
    return RunBrief(
        row["id"],
        uri=row.get("uri", ""),
        status=row.get("status", "Unknown"),
        name=row.get("name", ""),
        created_at=row.get("created_at"),
        updated_at=row.get("updated_at"),
        ended_at=row.get("ended_at"),
        tags={summary.tag: summary for summary in summaries if summary is not None},
        hparams=row.get("hparams", {}),
        labels=row.get("labels", {}),
        damaged=row.get("damaged", 0),
        is_loading=row.get("is_loading", False),
        error=row.get("error", ""),
        version=int(row["v"].rpartition(".")[2]),
        owner=row.get("owner", ""),
        started_at=row.get("started_at"),
        instance_type=row.get("instance_type", ""),
        instance_count=row.get("instance_count"),
        cause=row.get("cause", ""),
        sub_status=row.get("sub_status", ""),
        cost=row.get("cost"),
        currency=row.get("currency", ""),
        annotations=RunAnnotations(tuple(row.get("tags", ())), row.get("note", ""), row.get("archived", False)),
    )


def _summary(tag: str, numbers: Mapping[str, Any]) -> TagSummary | None:
    from pai_sdk._data.run.events.series import Point, TagSummary

    if numbers.get("count") is None:
        return None
    last = None if numbers["step"] is None else Point(math.nan, int(numbers["step"]), numbers["last"])
    extremes = {"min": numbers["min"], "max": numbers["max"]}
    return TagSummary(tag, "scalar", count=numbers["count"], last=last, nan_count=numbers["nan"], **extremes)


def _full_list(row: Mapping[str, Any], name: str) -> list[Any]:
    values = [*row[name]]
    for kind, indices in row.get("nonfinite", {}).get(name, {}).items():
        for at in indices:
            values[at] = _NOT_FINITE[kind]
    return values


def _values(row: Mapping[str, Any], name: str) -> Floats:
    import numpy as np

    values = np.array([math.nan if value is None else value for value in row[name]], np.float64)
    for kind, indices in row.get("nonfinite", {}).items():
        values[indices] = _NOT_FINITE[kind]
    return values


def _comparison(response: Mapping[str, Any]) -> Comparison:
    import numpy as np

    from pai_sdk._data.run.plots.figures import Comparison

    edges = np.array(response["edges"], np.float64)
    curves = tuple(_curve(row, (at,), edges) for at, row in enumerate(response["curves"]))
    labels = {row["name"]: row["label"] for row in response["curves"] if "label" in row}
    counts = response["points"], response["shown"]
    left_out = response.get("left_out", 0)
    return Comparison(
        response["x"], edges, curves, *counts, response["exact"], (response["tag"],), labels, left_out
    )


def _curve(row: Mapping[str, Any], members: tuple[int, ...], edges: Floats) -> Curve:
    import numpy as np

    from pai_sdk._data.run.plots.drawing import Curve

    value = _values(row, "values")
    if "xs" in row:
        nan, infinite = np.isnan(value).astype(np.int64), np.isinf(value).astype(np.int64)
        count = np.ones(len(value), np.int64)
        return Curve(
            row["name"], members, np.array(row["xs"], np.float64), value, None, None, count, nan, infinite
        )
    nan, infinite = np.zeros(len(value), np.int64), np.zeros(len(value), np.int64)
    for at, nan_count, inf_count in row.get("nonfinite_buckets", ()):
        nan[at], infinite[at] = nan_count, inf_count
    bounds = {name: {"values": row[name]} for name in ("low", "high") if name in row}
    low, high = (_values(bounds[name], "values") if name in bounds else None for name in ("low", "high"))
    count, middle = np.array(row["counts"], np.int64), (edges[:-1] + edges[1:]) / 2
    return Curve(row["name"], members, middle, value, low, high, count, nan, infinite)
