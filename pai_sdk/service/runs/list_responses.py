"""Rows of the list of runs: small, since a list has a thousand of them and is asked for each second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pai_sdk.service.runs.responses import finite

if TYPE_CHECKING:
    from pai_sdk.run.events.series import TagSummary
    from pai_sdk.run.watch.records import HparamsDiff, RunBrief

__all__ = ["FIELDS", "QUEUE_PLACE", "brief_row", "diff_row", "plain", "tag_row", "tags_of"]

_OF_TAGS: dict[str, Callable[[TagSummary], float | None]] = {
    "last": lambda summary: None if summary.last is None else summary.last.value,
    "min": lambda summary: summary.min,
    "max": lambda summary: summary.max,
    "step": lambda summary: None if summary.last is None else summary.last.step,
    "count": lambda summary: summary.count,
    "nan": lambda summary: summary.nan_count + summary.inf_count,
}
_COUNTS = ("step", "count", "nan")
_OF_RUN = (
    *("uri", "status", "name", "created_at", "updated_at", "ended_at", "labels"),
    *("hparams", "damaged", "is_loading", "error"),
)
QUEUE_PLACE = "queue_place"
MEDIA = "media"
_MEDIA_KINDS = ("image", "histogram", "text")
FIELDS = (*_OF_RUN, QUEUE_PLACE, MEDIA, *_OF_TAGS)
"""The fields of a row, besides the id and the version."""

_MOST_TAGS = 1000
_LONGEST_TEXT = 2000


def brief_row(brief: RunBrief, tags: Sequence[str], fields: Sequence[str], epoch: str) -> dict[str, Any]:
    """A run as an object: what is asked for, without what is empty.

    Args:
        brief: the run.
        tags: the metrics whose numbers are wanted.
        fields: of `FIELDS`.
        epoch: of the manager, for the version.
    """
    row: dict[str, Any] = {"id": brief.id, "v": f"{epoch}.{brief.version}"}
    for name in fields:
        if name in _OF_RUN and (value := getattr(brief, name)) not in (None, "", 0, {}):
            row[name] = plain(value)
    if MEDIA in fields and (media := _media_of(brief)):
        row[MEDIA] = media
    summaries = [brief.tags.get(tag) for tag in tags]
    for name in fields if tags else ():
        if (of := _OF_TAGS.get(name)) is not None:
            values = [
                None if summary is None or summary.kind != "scalar" else of(summary) for summary in summaries
            ]
            row[name], others = (values, {}) if name in _COUNTS else finite(values)
            if others:
                row.setdefault("nonfinite", {})[name] = others
    return row


def _media_of(brief: RunBrief) -> list[str]:
    """Returns what a run has besides numbers, as `KIND:TAG`; the first thousand, sorted."""
    found = sorted(f"{one.kind}:{one.tag}" for one in brief.tags.values() if one.kind in _MEDIA_KINDS)
    return found[:_MOST_TAGS]


def tag_row(summary: TagSummary) -> dict[str, Any]:
    """A tag as an object."""
    row: dict[str, Any] = {"tag": summary.tag, "kind": summary.kind, "count": summary.count}
    if summary.first_step is not None:
        row["first_step"] = summary.first_step
    if summary.last is not None:
        row["last"] = plain(summary.last._asdict())
    if summary.kind == "scalar":
        row |= {"min": plain(summary.min), "max": plain(summary.max)}
        row |= {"nan_count": summary.nan_count, "inf_count": summary.inf_count}
    if summary.replaced:
        row["replaced"] = summary.replaced
    return row


def tags_of(briefs: Iterable[RunBrief]) -> list[str]:
    """The metrics of some runs, sorted; the first thousand."""
    found = {tag for brief in briefs for tag, summary in brief.tags.items() if summary.kind == "scalar"}
    return sorted(found)[:_MOST_TAGS]


def diff_row(diff: HparamsDiff) -> dict[str, Any]:
    """A comparison of hyperparameters as an object."""
    return {
        "runs": [*diff.run_ids],
        "differing": [plain(asdict(one)) for one in diff.differing],
        "constant": plain(diff.constant),
        "metric": diff.metric,
        "metric_values": plain(diff.metric_values),
    }


def plain(value: Any) -> Any:
    """A value as JSON can have it: NaN and infinities as text, long texts cut."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if -float("inf") < value < float("inf") else str(value)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    if hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return plain(str(value))
