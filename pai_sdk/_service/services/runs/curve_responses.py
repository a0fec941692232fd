"""Responses with curves: JSON, CSV, and binary columns for the page and programs.

A view with at most two points per bucket has all points. Otherwise each bucket has its minimum and maximum (`low`,
`high`) and its last value (`value`); an empty bucket has null, in columns NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.runs.responses import csv_text, finite, json_bytes, json_list

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pai_sdk._data.run.events.binary_columns import BinaryColumn
    from pai_sdk._data.run.events.series import Series
    from pai_sdk._data.run.plots.curve_view import CurveView
    from pai_sdk._data.run.plots.drawing import Curve
    from pai_sdk._data.run.plots.figures import Comparison

__all__ = ["CSV", "JSON", "PAIC", "comparison_response", "series_response", "value_bytes"]

JSON = "application/json"
CSV = "text/csv"
PAIC = "application/vnd.pai.columns"

_MIN_POINT_BYTES = 16  # as text: step, time, value and separators
_POINT_COLUMNS_BYTES = 20


def value_bytes(media_type: str, *, is_double: bool) -> int:
    """Returns the minimum size of one bucket of one curve in a response: two extremes and a count."""
    if media_type == PAIC:
        return 16 if is_double else 8
    return 8


def series_response(
    series: Series, media_type: str, header: Mapping[str, Any], view: CurveView, work: Work
) -> bytes:
    """Returns the points of one metric, or their buckets unless the view has 0 of them.

    `header` has further keys of the response, which CSV has no place for.
    Raises InvalidInputError for an invalid argument, and WireError beyond the budget of the request.
    """
    from pai_sdk._data.run.plots.buckets import compared

    if not view.buckets:
        return _all_points(series, media_type, header, view, work)
    comparison = compared([series], view)
    return comparison_response([(series.tag, comparison)], media_type, header, has_last=True, work=work)


def comparison_response(
    comparisons: Iterable[tuple[str, Comparison]],
    media_type: str,
    header: Mapping[str, Any],
    members: Sequence[Sequence[str]] = (),
    *,
    work: Work,
    has_last: bool = False,
    is_double: bool = False,
) -> bytes:
    """Returns curves of one or more tags; raises WireError beyond the budget of the request.

    `comparisons` are created one by one and not retained. `members` has run ids per tag, to which the members of
    curves are indices; it is empty if each curve is of one run.
    """
    if media_type == CSV:
        names = ("tag", "curve", "x", "to", "value", "low", "high", "count", "nan", "inf")
        return csv_text(names, _rows(comparisons), work.spend)
    if media_type == PAIC:
        return _columns(comparisons, header, members, work=work, has_last=has_last, is_double=is_double)
    rows = (
        _in_json(tag, comparison, members[at] if members else [], has_last=has_last)
        for at, (tag, comparison) in enumerate(comparisons)
    )
    return json_list("comparisons", rows, header, work)


# ---- all points -----------------------------------------------------------------------------------------------


def _all_points(series: Series, media_type: str, header: Mapping[str, Any], view: CurveView, work: Work) -> bytes:
    import numpy as np

    from pai_sdk._data.run.events.binary_columns import BinaryColumn, write_columns
    from pai_sdk._data.run.plots.smoothing import smoothed

    x = view.x
    value = smoothed(series.value, view.smooth) if view.smooth else series.value
    x_values: npt.NDArray[Any] = series.step if x in ("step", "relative_step") else series.wall
    if x.startswith("relative") and len(x_values):
        x_values = x_values - x_values[0]
    mask = np.ones(len(x_values), bool)
    if view.start is not None:
        mask &= x_values >= view.start
    if view.end is not None:
        mask &= x_values <= view.end
    step, wall, x_values, value = series.step[mask], series.wall[mask], x_values[mask], value[mask]
    size_bytes = (_POINT_COLUMNS_BYTES if media_type == PAIC else _MIN_POINT_BYTES) * len(step)
    work.require(size_bytes, f"it has {len(step):,} points")
    if media_type == CSV:
        rows = zip(step.tolist(), wall.tolist(), value.tolist(), strict=True)
        return csv_text(("step", "wall", "value"), rows, work.spend)
    counts = {"x": x, "points": len(value), "shown": len(value), "exact": True}
    if media_type == PAIC:
        columns = [BinaryColumn("step", step), BinaryColumn("wall", wall), BinaryColumn("value", value)]
        return write_columns(
            [*columns, *([BinaryColumn("x", x_values)] if "_" in x else [])], {**header, **counts}
        )
    values, nonfinite = finite(value.tolist())
    lists = {"steps": step.tolist(), "walls": wall.tolist(), "values": values}
    if "_" in x:
        lists["xs"] = x_values.tolist()
    return json_bytes({**header, **counts, **lists, **({"nonfinite": nonfinite} if nonfinite else {})})


# ---- curves ---------------------------------------------------------------------------------------------------


def _in_json(tag: str, comparison: Comparison, run_ids: Sequence[str], *, has_last: bool) -> dict[str, Any]:
    described = {
        **_comparison_header(tag, comparison),
        "edges": [] if comparison.is_exact else comparison.edges.tolist(),
    }
    return {
        **described,
        "curves": [_curve(curve, comparison, run_ids, has_last=has_last) for curve in comparison.curves],
    }


def _comparison_header(tag: str, comparison: Comparison) -> dict[str, Any]:
    return {
        "tag": tag,
        "x": comparison.x,
        "points": comparison.points,
        "shown": comparison.shown,
        "exact": comparison.is_exact,
        **({"left_out": comparison.left_out} if comparison.left_out else {}),
    }


def _members(curve: Curve, comparison: Comparison, run_ids: Sequence[str]) -> dict[str, Any]:
    label = {"label": comparison.labels[curve.name]} if curve.name in comparison.labels else {}
    return {"name": curve.name, **label, "runs": [run_ids[at] for at in curve.members if at < len(run_ids)]}


def _curve(curve: Curve, comparison: Comparison, run_ids: Sequence[str], *, has_last: bool) -> dict[str, Any]:
    row = _members(curve, comparison, run_ids)
    if comparison.is_exact:
        row["xs"] = curve.x.tolist()
    if comparison.is_exact or has_last or len(curve.members) > 1 or curve.low is None:
        row["values"], nonfinite = finite(curve.value.tolist())
        if comparison.is_exact and nonfinite:
            row["nonfinite"] = nonfinite
    if curve.low is not None and curve.high is not None:
        row["low"], row["high"] = finite(curve.low.tolist())[0], finite(curve.high.tolist())[0]
    if not comparison.is_exact:
        row["counts"] = curve.count.tolist()
        buckets = (curve.nan_count + curve.inf_count).nonzero()[0].tolist()
        if buckets:
            counted = [[at, int(curve.nan_count[at]), int(curve.inf_count[at])] for at in buckets]
            row["nonfinite_buckets"] = counted
    return row


def _rows(comparisons: Iterable[tuple[str, Comparison]]) -> Iterator[Sequence[Any]]:
    for tag, comparison in comparisons:
        edges = comparison.edges.tolist()
        for curve in comparison.curves:
            low = [None] * len(curve.value) if curve.low is None else curve.low.tolist()
            high = [None] * len(curve.value) if curve.high is None else curve.high.tolist()
            starts = curve.x.tolist() if comparison.is_exact else edges[:-1]
            ends = starts if comparison.is_exact else edges[1:]
            counts = (curve.count.tolist(), curve.nan_count.tolist(), curve.inf_count.tolist())
            for x, end, value, low_value, high_value, *counted in zip(
                starts, ends, curve.value.tolist(), low, high, *counts, strict=True
            ):
                if counted[0]:
                    yield (tag, curve.name, x, end, value, low_value, high_value, *counted)


def _columns(
    comparisons: Iterable[tuple[str, Comparison]],
    header: Mapping[str, Any],
    members: Sequence[Sequence[str]],
    *,
    work: Work,
    has_last: bool,
    is_double: bool,
) -> bytes:
    from pai_sdk._data.run.events.binary_columns import write_columns

    columns: list[BinaryColumn] = []
    described = []
    for at, (tag, comparison) in enumerate(comparisons):
        run_ids = members[at] if members else []
        names = [_members(curve, comparison, run_ids) if run_ids else curve.name for curve in comparison.curves]
        described.append({**_comparison_header(tag, comparison), "curves": names})
        added = [*_columns_of(tag, comparison, has_last=has_last, is_double=is_double)]
        work.spend(sum(column.values.nbytes for column in added))
        columns += added
    return write_columns(columns, {**header, "comparisons": described})


def _columns_of(tag: str, comparison: Comparison, *, has_last: bool, is_double: bool) -> Iterator[BinaryColumn]:
    """Yields the columns of one tag; the curves are concatenated."""
    import numpy as np

    from pai_sdk._data.run.events.binary_columns import BinaryColumn

    def column(name: str, parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> BinaryColumn:
        joined = np.concatenate(parts) if parts else np.empty(0)
        with np.errstate(over="ignore"):
            return BinaryColumn(name, joined.astype(dtype), {"tag": tag})

    number = np.float64 if is_double else np.float32
    curves = comparison.curves
    if comparison.is_exact:
        yield column("length", [np.array([len(curve.x)]) for curve in curves], np.uint32)
        yield column("x", [curve.x for curve in curves], np.float64)
    else:
        yield BinaryColumn("edges", comparison.edges, {"tag": tag})
    if comparison.is_exact or has_last or any(len(curve.members) > 1 or curve.low is None for curve in curves):
        yield column("value", [curve.value for curve in curves], number)
    if curves and curves[0].low is not None:
        yield column("low", [curve.low for curve in curves if curve.low is not None], number)
        yield column("high", [curve.high for curve in curves if curve.high is not None], number)
    if not comparison.is_exact and curves:
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
