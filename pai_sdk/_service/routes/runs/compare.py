"""Routes that compare runs: curves on one x axis, and differing hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pai_sdk._data.run.plots.curve_view import tags_of_axis
from pai_sdk._data.run.watch.query import runs_with
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.runs.runs import XName
from pai_sdk._service.services.budgets import COMPARE, DIFF, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.runs.compare import (
    MAX_RUNS,
    check_comparison,
    count_entries,
    selected_runs,
)
from pai_sdk._service.services.runs.curve_responses import CSV, JSON, PAIC, comparison_response, value_bytes
from pai_sdk._service.services.runs.list_responses import diff_row
from pai_sdk._service.services.runs.on_demand_manager import loaded
from pai_sdk._service.services.runs.page_filter import check_key, page_filter
from pai_sdk._service.services.runs.responses import LIVE, best_of, json_list, tagged
from pai_sdk._service.services.runs.runs import call_manager
from pai_sdk._service.services.runs.source import RunsOf
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.runs import ComparisonBody, HparamsComparison

if TYPE_CHECKING:
    from pai_sdk._data.run.plots.figures import Comparison

router = APIRouter(prefix="/api/v1", route_class=BudgetedRoute)

_Text = Annotated[str, Field(max_length=4096)]
_MetricAxis = Annotated[str, Field(max_length=4096, pattern="^metric:.")]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Selection(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    runs: list[_Text] | None = Field(None, max_length=MAX_RUNS, description="Ids of runs.")
    filter: str | None = Field(None, max_length=16_384, description="Or a filter, as for the list of runs.")


class CompareRequest(_Selection):
    """Body of a comparison of curves."""

    tags: list[_Text] = Field(min_length=1, max_length=50)
    x: XName | _MetricAxis = Field("step", description="Or `metric:TAG`: another metric, at the same step.")
    start: _Finite | None = Field(None, alias="from")
    end: _Finite | None = Field(None, alias="to")
    buckets: int = Field(250, ge=2, le=10_000)
    smooth: float = Field(0.0, ge=0, lt=1)
    group_by: list[_Text] = Field(
        default_factory=list, max_length=20, description="Such as hparams.lr, labels.team."
    )
    band: Literal["std", "range", "quantile"] | None = None
    last: bool = Field(False, description="True to return the last value of each bucket.")
    precision: Literal["single", "double"] = Field("single", description="Of columns.")


class DiffRequest(_Selection):
    """Body of a comparison of hyperparameters, optionally ranked by a metric."""

    metric: _Text | None = None


@router.post("/compare", response_model=ComparisonBody, responses={200: {"content": {CSV: {}, PAIC: {}}}})
@within(COMPARE)
def compare_runs(
    request: Request, runs: RunsOf, principal: PrincipalOf, work: WorkOf, body: CompareRequest
) -> Response:
    """Compare curves of many runs on shared bucket edges: JSON, CSV (`text/csv`) or columns, by `Accept`.

    The extremes are exact: each bucket has the minimum and the maximum of its values, after smoothing. A view with
    at most two points per bucket has all points, and `exact` is true. Runs without a tag have no curve. With
    `group_by`, runs with the same values share one curve of their means, with a band if one is requested.

    With another metric as x axis, a point has the value of that metric at its step; `left_out` counts the points
    whose step has none. Runs without that metric have no curve.

    The size of the response is runs x tags x buckets; a response that would be too large is refused before it is
    computed.
    """
    manager = loaded(runs)
    selected = _selected(body, principal)
    for key in body.group_by:
        check_key("group_by", key)
    media_type, is_double = best_of(request, (JSON, CSV, PAIC)), body.precision == "double"
    briefs = selected_runs(manager, selected, work)
    size_bytes = value_bytes(media_type, is_double=is_double)
    tags_of = {tag: tags_of_axis(tag, body.x) for tag in body.tags}
    for tag in body.tags:
        check_comparison(work, briefs, tags_of[tag], is_smoothed=body.smooth > 0)
    if not body.group_by:
        entries = sum(count_entries(briefs, tags_of[tag], body.buckets) for tag in body.tags)
        work.require(entries * size_bytes, f"{len(briefs)} runs, {len(body.tags)} tags, {body.buckets} buckets")
    options: dict[str, Any] = {"x": body.x, "start": body.start, "end": body.end, "buckets": body.buckets}
    options |= {"smooth": body.smooth, "group_by": tuple(body.group_by), "band": body.band}

    def comparisons() -> Iterator[tuple[str, Comparison]]:
        for tag in body.tags:  # tag by tag, which bounds the memory for points
            work.check()
            yield tag, call_manager(manager.compare, selected, tag, **options)

    members = (
        [[brief.id for brief in runs_with(briefs, tags_of[tag])] for tag in body.tags] if body.group_by else []
    )
    content = comparison_response(
        comparisons(), media_type, {}, members, work=work, has_last=body.last, is_double=is_double
    )
    return tagged(request, content, media_type, LIVE)


@router.post("/hparams/diff", response_model=HparamsComparison)
@within(DIFF)
def compare_hparams(
    request: Request, runs: RunsOf, principal: PrincipalOf, work: WorkOf, body: DiffRequest
) -> Response:
    """Compare the hyperparameters of runs: differing ones by run, and those that are equal in all runs.

    A run without a hyperparameter is missing in its values; null is a value. With a metric, the hyperparameters
    are sorted by how much of it they explain: `correlation` is the rank correlation, `explained` the explained
    part of the variance of the ranks.
    """
    manager = loaded(runs)
    selected = _selected(body, principal)
    briefs = selected_runs(manager, selected, work)
    work.hold(sum(len(brief.hparams) for brief in briefs), "hyperparameters")
    row = diff_row(call_manager(manager.hparams_diff, selected, metric=body.metric))
    return tagged(request, json_list("differing", row.pop("differing"), row, work), JSON, LIVE)


def _selected(body: _Selection, principal: Principal) -> str | list[str]:
    """Returns ids of runs, or a filter."""
    if (body.runs is None) == (body.filter is None):
        raise invalid_parameter("runs, filter: give one of them.")
    return body.runs if body.runs is not None else page_filter(body.filter or "", principal.user)
