"""Rows of the list of runs. They are small, since a page requests up to a thousand of them each second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pai_sdk._data.run.watch.records import NOT_ANNOTATED
from pai_sdk._service.services.runs.responses import finite

if TYPE_CHECKING:
    from pai_sdk._data.run.events.series import TagSummary
    from pai_sdk._data.run.watch.records import HparamsDiff, RunAnnotations, RunBrief

_TAG_FIELDS: dict[str, Callable[[TagSummary], float | None]] = {
    "last": lambda summary: None if summary.last is None else summary.last.value,
    "min": lambda summary: summary.min,
    "max": lambda summary: summary.max,
    "step": lambda summary: None if summary.last is None else summary.last.step,
    "count": lambda summary: summary.count,
    "nan": lambda summary: summary.nan_count + summary.inf_count,
}
_COUNTS = ("step", "count", "nan")
_COST = "cost"
_RUN_FIELDS = (
    *("uri", "status", "name", "created_at", "started_at", "updated_at", "ended_at", "labels"),
    *("hparams", "damaged", "is_loading", "error"),
    *("owner", "instance_type", "instance_count", "cause", "sub_status", _COST, "currency"),
)
_EMPTY: tuple[object, ...] = (None, "", 0, {})
STAR = "star"
ANNOTATIONS = (STAR, "tags", "note", "archived")
"""The fields of a row that users change."""

SERVICE_FOLDER = "job://"
"""The scheme of folders that only the service can read; rows do not have their URIs."""

QUEUE_POSITION = "queue_place"
WAITS_FOR = "waits_for"  # comes with the position
MEDIA = "media"
_MEDIA_KINDS = ("image", "histogram", "text")
FIELDS = (*_RUN_FIELDS, *ANNOTATIONS, QUEUE_POSITION, MEDIA, *_TAG_FIELDS)
"""The fields of a row, besides the id and the version."""

_MAX_TAGS = 1000
_MAX_TEXT_LENGTH = 2000
_MAX_NOTE_LENGTH = 200


def brief_row(brief: RunBrief, tags: Sequence[str], fields: Sequence[str], epoch: str) -> dict[str, Any]:
    """Returns a run as an object with the requested fields, without empty ones and without the star."""
    row: dict[str, Any] = {"id": brief.id, "v": f"{epoch}.{brief.version}"}
    for name in fields:
        if name in _RUN_FIELDS and (value := getattr(brief, name)) not in _EMPTY:
            row[name] = plain(value)
    if brief.cost == 0 and _COST in fields:  # 0 is a cost
        row[_COST] = 0
    if brief.uri.startswith(SERVICE_FOLDER):
        row.pop("uri", None)
    if brief.annotations is not NOT_ANNOTATED:
        row |= {name: value for name, value in _annotations(brief.annotations).items() if name in fields and value}
    if MEDIA in fields and (media := _media_of(brief)):
        row[MEDIA] = media
    summaries = [brief.tags.get(tag) for tag in tags]
    for name in fields if tags else ():
        if (tag_value := _TAG_FIELDS.get(name)) is not None:
            values = [
                None if summary is None or summary.kind != "scalar" else tag_value(summary)
                for summary in summaries
            ]
            row[name], nonfinite = (values, {}) if name in _COUNTS else finite(values)
            if nonfinite:
                row.setdefault("nonfinite", {})[name] = nonfinite
    return row


def _annotations(annotations: RunAnnotations) -> dict[str, Any]:
    note = annotations.note
    note = note if len(note) <= _MAX_NOTE_LENGTH else f"{note[:_MAX_NOTE_LENGTH]}…"
    return {"tags": [*annotations.tags], "note": note, "archived": annotations.archived}


def _media_of(brief: RunBrief) -> list[str]:
    """Returns images, histograms and texts of a run as `KIND:TAG`; the first thousand, sorted."""
    media = sorted(
        f"{summary.kind}:{summary.tag}" for summary in brief.tags.values() if summary.kind in _MEDIA_KINDS
    )
    return media[:_MAX_TAGS]


def tag_row(summary: TagSummary) -> dict[str, Any]:
    """Returns a tag as an object."""
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
    """Returns the metrics of some runs, sorted; the first thousand."""
    tags = {tag for brief in briefs for tag, summary in brief.tags.items() if summary.kind == "scalar"}
    return sorted(tags)[:_MAX_TAGS]


def diff_row(diff: HparamsDiff) -> dict[str, Any]:
    """Returns a comparison of hyperparameters as an object."""
    return {
        "runs": [*diff.run_ids],
        "differing": [plain(asdict(hparam)) for hparam in diff.differing],
        "constant": plain(diff.constant),
        "metric": diff.metric,
        "metric_values": plain(diff.metric_values),
    }


def plain(value: Any) -> Any:
    """Converts a value to JSON: NaN and infinity to strings; truncates long strings."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if -float("inf") < value < float("inf") else str(value)
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT_LENGTH else f"{value[:_MAX_TEXT_LENGTH]}…"
    if hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return plain(str(value))
