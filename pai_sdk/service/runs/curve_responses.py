"""Curves as responses: JSON for people, CSV for tables, columns for pages and programs.

A view with at most two points a bucket has all its points. Otherwise each bucket has its least and its largest
value (`low`, `high`) and its last one (`value`); an empty bucket has null, in columns NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pai_sdk.service.budgets import Work
from pai_sdk.service.runs.responses import csv_text, finite, json_bytes, json_list

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pai_sdk.run.events.binary_columns import BinaryColumn
    from pai_sdk.run.events.series import Series
    from pai_sdk.run.plots.buckets import Comparison, Curve, XAxis

__all__ = ["CSV", "JSON", "PAIC", "comparison_response", "series_response", "value_bytes"]

JSON = "application/json"
CSV = "text/csv"
PAIC = "application/vnd.pai.columns"

_LEAST_POINT_BYTES = 16  # in text: a step, a time, a value, and what is between them
_POINT_COLUMNS_BYTES = 20


def value_bytes(media_type: str, *, is_double: bool) -> int:
    """The least that one bucket of one curve takes in a response: an extreme, another one, a count."""
    if media_type == PAIC:
        return 16 if is_double else 8
    return 8


def series_response(
    series: Series,
    media_type: str,
    facts: Mapping[str, Any],
    x: XAxis,
    start: float | None,
    end: float | None,
    buckets: int,
    smooth: float,
    work: Work,
) -> bytes:
    """The points of one metric, or their buckets.

    Args:
        series: the points.
        media_type: of the response.
        facts: what it says besides, where it has a place for that.
        x: what the axis is.
        start: the least x; None for all.
        end: the largest x, likewise.
        buckets: how many; 0 for all points.
        smooth: weight of the smoothing, from 0 to less than 1.
        work: the request.

    Raises:
        InvalidInputError: an argument cannot be used.
        WireError: the response is larger than the request may have.
    """
    from pai_sdk.run.plots.buckets import compared

    if not buckets:
        return _all_points(series, media_type, facts, x, start, end, smooth, work)
    found = compared([series], x=x, start=start, end=end, buckets=buckets, smooth=smooth)
    return comparison_response([(series.tag, found)], media_type, facts, has_last=True, work=work)


def comparison_response(
    comparisons: Iterable[tuple[str, Comparison]],
    media_type: str,
    facts: Mapping[str, Any],
    members: Sequence[Sequence[str]] = (),
    *,
    work: Work,
    has_last: bool = False,
    is_double: bool = False,
) -> bytes:
    """Curves of one or more tags.

    Args:
        comparisons: tag and curves; made one after the other, and not kept.
        media_type: of the response.
        facts: what it says besides.
        members: for each tag the runs that the members of curves count; none where a curve is of one run.
        work: the request, which counts the bytes.
        has_last: whether the last value of each bucket is wanted.
        is_double: whether columns have double precision.

    Raises:
        WireError: the response is larger than the request may have, or takes longer.
    """
    if media_type == CSV:
        names = ("tag", "curve", "x", "to", "value", "low", "high", "count", "nan", "inf")
        return csv_text(names, _rows(comparisons), work.spend)
    if media_type == PAIC:
        return _columns(comparisons, facts, members, work=work, has_last=has_last, is_double=is_double)
    described = (
        _in_json(tag, found, members[at] if members else [], has_last=has_last)
        for at, (tag, found) in enumerate(comparisons)
    )
    return json_list("comparisons", described, facts, work)


# ---- all points -----------------------------------------------------------------------------------------------


def _all_points(
    series: Series,
    media_type: str,
    facts: Mapping[str, Any],
    x: XAxis,
    start: float | None,
    end: float | None,
    smooth: float,
    work: Work,
) -> bytes:
    import numpy as np

    from pai_sdk.run.events.binary_columns import BinaryColumn, write_columns
    from pai_sdk.run.plots.buckets import smoothed

    value = smoothed(series.value, smooth) if smooth else series.value
    place: npt.NDArray[Any] = series.step if x in ("step", "relative_step") else series.wall
    if x.startswith("relative") and len(place):
        place = place - place[0]
    wanted = np.ones(len(place), bool)
    if start is not None:
        wanted &= place >= start
    if end is not None:
        wanted &= place <= end
    step, wall, place, value = series.step[wanted], series.wall[wanted], place[wanted], value[wanted]
    size_bytes = (_POINT_COLUMNS_BYTES if media_type == PAIC else _LEAST_POINT_BYTES) * len(step)
    work.require(size_bytes, f"it has {len(step):,} points")
    if media_type == CSV:
        rows = zip(step.tolist(), wall.tolist(), value.tolist(), strict=True)
        return csv_text(("step", "wall", "value"), rows, work.spend)
    counts = {"x": x, "points": len(value), "shown": len(value), "exact": True}
    if media_type == PAIC:
        columns = [BinaryColumn("step", step), BinaryColumn("wall", wall), BinaryColumn("value", value)]
        return write_columns([*columns, *([BinaryColumn("x", place)] if "_" in x else [])], {**facts, **counts})
    values, others = finite(value.tolist())
    listed = {"steps": step.tolist(), "walls": wall.tolist(), "values": values}
    if "_" in x:
        listed["xs"] = place.tolist()
    return json_bytes({**facts, **counts, **listed, **({"nonfinite": others} if others else {})})


# ---- curves ---------------------------------------------------------------------------------------------------


def _in_json(tag: str, found: Comparison, run_ids: Sequence[str], *, has_last: bool) -> dict[str, Any]:
    described = {**_facts(tag, found), "edges": [] if found.is_exact else found.edges.tolist()}
    return {**described, "curves": [_curve(curve, found, run_ids, has_last=has_last) for curve in found.curves]}


def _facts(tag: str, found: Comparison) -> dict[str, Any]:
    return {"tag": tag, "x": found.x, "points": found.points, "shown": found.shown, "exact": found.is_exact}


def _members(curve: Curve, found: Comparison, run_ids: Sequence[str]) -> dict[str, Any]:
    label = {"label": found.labels[curve.name]} if curve.name in found.labels else {}
    return {"name": curve.name, **label, "runs": [run_ids[at] for at in curve.members if at < len(run_ids)]}


def _curve(curve: Curve, found: Comparison, run_ids: Sequence[str], *, has_last: bool) -> dict[str, Any]:
    row = _members(curve, found, run_ids)
    if found.is_exact:
        row["xs"] = curve.x.tolist()
    if found.is_exact or has_last or len(curve.members) > 1 or curve.low is None:
        row["values"], others = finite(curve.value.tolist())
        if found.is_exact and others:
            row["nonfinite"] = others
    if curve.low is not None and curve.high is not None:
        row["low"], row["high"] = finite(curve.low.tolist())[0], finite(curve.high.tolist())[0]
    if not found.is_exact:
        row["counts"] = curve.count.tolist()
        places = (curve.nan_count + curve.inf_count).nonzero()[0].tolist()
        if places:
            counted = [[at, int(curve.nan_count[at]), int(curve.inf_count[at])] for at in places]
            row["nonfinite_buckets"] = counted
    return row


def _rows(comparisons: Iterable[tuple[str, Comparison]]) -> Iterator[Sequence[Any]]:
    for tag, found in comparisons:
        edges = found.edges.tolist()
        for curve in found.curves:
            low = [None] * len(curve.value) if curve.low is None else curve.low.tolist()
            high = [None] * len(curve.value) if curve.high is None else curve.high.tolist()
            begins = curve.x.tolist() if found.is_exact else edges[:-1]
            ends = begins if found.is_exact else edges[1:]
            counts = (curve.count.tolist(), curve.nan_count.tolist(), curve.inf_count.tolist())
            for x, end, value, least, largest, *counted in zip(
                begins, ends, curve.value.tolist(), low, high, *counts, strict=True
            ):
                if counted[0]:
                    yield (tag, curve.name, x, end, value, least, largest, *counted)


def _columns(
    comparisons: Iterable[tuple[str, Comparison]],
    facts: Mapping[str, Any],
    members: Sequence[Sequence[str]],
    *,
    work: Work,
    has_last: bool,
    is_double: bool,
) -> bytes:
    from pai_sdk.run.events.binary_columns import write_columns

    columns: list[BinaryColumn] = []
    described = []
    for at, (tag, found) in enumerate(comparisons):
        run_ids = members[at] if members else []
        names = [_members(curve, found, run_ids) if run_ids else curve.name for curve in found.curves]
        described.append({**_facts(tag, found), "curves": names})
        added = [*_columns_of(tag, found, has_last=has_last, is_double=is_double)]
        work.spend(sum(column.values.nbytes for column in added))
        columns += added
    return write_columns(columns, {**facts, "comparisons": described})


def _columns_of(tag: str, found: Comparison, *, has_last: bool, is_double: bool) -> Iterator[BinaryColumn]:
    """The columns of one tag; those of several curves stand one behind the other."""
    import numpy as np

    from pai_sdk.run.events.binary_columns import BinaryColumn

    def column(name: str, parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> BinaryColumn:
        joined = np.concatenate(parts) if parts else np.empty(0)
        with np.errstate(over="ignore"):
            return BinaryColumn(name, joined.astype(dtype), {"tag": tag})

    number = np.float64 if is_double else np.float32
    curves = found.curves
    if found.is_exact:
        yield column("length", [np.array([len(curve.x)]) for curve in curves], np.uint32)
        yield column("x", [curve.x for curve in curves], np.float64)
    else:
        yield BinaryColumn("edges", found.edges, {"tag": tag})
    if found.is_exact or has_last or any(len(curve.members) > 1 or curve.low is None for curve in curves):
        yield column("value", [curve.value for curve in curves], number)
    if curves and curves[0].low is not None:
        yield column("low", [curve.low for curve in curves if curve.low is not None], number)
        yield column("high", [curve.high for curve in curves if curve.high is not None], number)
    if not found.is_exact and curves:
        nan = np.stack([curve.nan_count for curve in curves])
        infinite = np.stack([curve.inf_count for curve in curves])
        at, bucket = np.nonzero(nan + infinite)
        for name, values in (
            ("curve", at),
            ("bucket", bucket),
            ("nan", nan[at, bucket]),
            ("inf", infinite[at, bucket]),
        ):
            yield BinaryColumn(f"nonfinite_{name}", values.astype(np.uint32), {"tag": tag})
