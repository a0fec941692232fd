"""Many runs at once: their curves on one x axis, and the hyperparameters in which they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from pai_sdk.service.runs.curve_answers import CSV, JSON, PAIC, comparison_answer
from pai_sdk.service.runs.kept_manager import loaded
from pai_sdk.service.runs.list_answers import diff_row
from pai_sdk.service.runs.run_answers import LIVE, best_of, json_bytes, tagged
from pai_sdk.service.runs.run_routes import XName, asked
from pai_sdk.service.runs.run_source import RunsOf
from pai_sdk.service.wire_errors import invalid_parameter

if TYPE_CHECKING:
    from pai_sdk.run.manager import RunManager

__all__ = ["router"]

router = APIRouter(prefix="/api/v1")

_MOST_RUNS = 10_000
_Text = Annotated[str, Field(max_length=4096)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Selection(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    runs: list[_Text] | None = Field(None, max_length=_MOST_RUNS, description="Ids of runs.")
    filter: str | None = Field(None, max_length=16_384, description="Or which runs, as for the list of runs.")


class CompareRequest(_Selection):
    """Which curves are compared, and how."""

    tags: list[_Text] = Field(min_length=1, max_length=50)
    x: XName = "step"
    start: _Finite | None = Field(None, alias="from")
    end: _Finite | None = Field(None, alias="to")
    buckets: int = Field(250, ge=2, le=10_000)
    smooth: float = Field(0.0, ge=0, lt=1)
    group_by: list[_Text] = Field(
        default_factory=list, max_length=20, description="Such as hparams.lr, labels.team."
    )
    band: Literal["std", "range", "quantile"] | None = None
    last: bool = Field(False, description="Whether the last value of each bucket is wanted.")
    precision: Literal["single", "double"] = Field("single", description="Of columns.")


class DiffRequest(_Selection):
    """Which runs are compared by their hyperparameters, and by which metric those are ranked."""

    metric: _Text | None = None


@router.post("/compare", responses={200: {"content": {CSV: {}, PAIC: {}}}})
def compare_runs(request: Request, runs: RunsOf, body: CompareRequest) -> Response:
    """Curves of many runs on shared bucket edges: JSON, CSV (`text/csv`) or columns, by `Accept`.

    The extremes are exact: each bucket has the least and the largest of its values. Smoothing comes before. A view
    with at most two points a bucket has all points, and `exact` says so. Runs that lack a tag have no curve. With
    `group_by`, the runs with the same values have one curve, of their means, with a band where one is asked for.
    """
    manager = loaded(runs.manager)
    selected = _selected(body)
    options: dict[str, Any] = {"x": body.x, "start": body.start, "end": body.end, "buckets": body.buckets}
    options |= {"smooth": body.smooth, "group_by": tuple(body.group_by), "band": body.band}
    found = [(tag, asked(manager.compare, selected, tag, **options)) for tag in body.tags]
    media_type = best_of(request, (JSON, CSV, PAIC))
    members = [_having(manager, selected, tag) for tag in body.tags] if body.group_by else []
    content = comparison_answer(
        found, media_type, {}, members, has_last=body.last, is_double=body.precision == "double"
    )
    return tagged(request, content, media_type, LIVE)


@router.post("/hparams/diff")
def compare_hparams(request: Request, runs: RunsOf, body: DiffRequest) -> Response:
    """The hyperparameters in which runs differ, by run, and those that are the same in all of them.

    A run that lacks one is not among its values; null is a value. With a metric, those come first that explain
    most of it: `correlation` is the rank correlation, `explained` the part of the variance of the ranks.
    """
    manager = loaded(runs.manager)
    diff = asked(manager.hparams_diff, _selected(body), metric=body.metric)
    return tagged(request, json_bytes(diff_row(diff)), JSON, LIVE)


def _having(manager: RunManager, selected: str | list[str], tag: str) -> list[str]:
    """The runs that have a metric: what the members of a group count."""
    if isinstance(selected, str):
        briefs = [*manager.runs(selected, "-created", _MOST_RUNS, tags=[tag]).runs]
    else:
        briefs = [manager.run(run_id).brief for run_id in selected]
    return [brief.id for brief in briefs if tag in brief.tags and brief.tags[tag].kind == "scalar"]


def _selected(body: _Selection) -> str | list[str]:
    """Ids of runs, or a filter.

    Raises:
        Fault: neither is given, or both are.
    """
    if (body.runs is None) == (body.filter is None):
        raise invalid_parameter("runs, filter: give one of them.")
    return body.runs if body.runs is not None else body.filter or ""
