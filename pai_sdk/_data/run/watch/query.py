"""Pages of runs: filtered, sorted, and with a cursor for the next page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pai_sdk._core.names.hints import did_you_mean, name_hint, wrong_value
from pai_sdk._data.run.watch.filter import PLAIN_KEYS, RunFilter, RunKey, parse_filter, parse_key
from pai_sdk._data.run.watch.records import NOT_ANNOTATED, RunBrief, RunPage, RunReference, run_ids
from pai_sdk._data.run.watch.snapshot import Snapshot
from pai_sdk.errors import InvalidInputError, Problem

_MAX_RUNS = 100_000
_SORTED_BY = ("id", "name", "created", "started", "updated", "status", "owner", "duration", "cost")


@dataclass(frozen=True)
class _Order:
    """An order of runs: by a key, runs without it at the end, and equal runs by their ids."""

    key: RunKey
    is_reversed: bool

    @classmethod
    def of(cls, text: str, briefs: Collection[RunBrief] = ()) -> _Order:
        name = text.removeprefix("-")
        if not name:
            hint = "id, name, created, updated, status, hparams.NAME or metrics.TAG; - reverses"
            raise InvalidInputError([Problem("sort", f"unknown key {text!r}", hint)])
        return cls(parse_key(name, briefs), text.startswith("-"))

    def sort_value(self, brief: RunBrief) -> tuple[int, Any] | None:
        """Returns a value in which numbers sort before strings; None for a run without the value."""
        value = self._value(brief)
        return None if value is None else (int(isinstance(value, str)), value)

    def _value(self, brief: RunBrief) -> float | str | None:
        value = self.key.value(brief)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        if isinstance(value, (bool, int, float)):
            return float(value) if abs(value) < 1e300 else math.copysign(math.inf, value)
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        if self.key.group == "hparams":
            try:
                number = float(text)
            except ValueError:
                pass
            else:
                return None if math.isnan(number) else number
        return text

    def sorted(self, briefs: Iterable[RunBrief]) -> list[RunBrief]:
        by_id = sorted(briefs, key=attrgetter("id"))
        # Sorts indexes, not pairs: allocating a thousand tuples in each call would trigger the garbage collector.
        values = [self._value(brief) for brief in by_id]
        ordered = []
        for kind in (str, float) if self.is_reversed else (float, str):
            indexes = [index for index, value in enumerate(values) if isinstance(value, kind)]
            indexes.sort(key=values.__getitem__, reverse=self.is_reversed)  # type: ignore[arg-type]
            ordered += [by_id[index] for index in indexes]
        return ordered + [by_id[index] for index, value in enumerate(values) if value is None]

    def is_behind(self, brief: RunBrief, last_value: Any, run_id: str) -> bool:
        """Returns True when a run is after the last one of a page."""
        value = self.sort_value(brief)
        if value is None or last_value is None:
            return (value is None and last_value is not None) or (value is last_value and brief.id > run_id)
        if value != last_value:
            return bool(value > last_value) != self.is_reversed
        return brief.id > run_id


def page_of(
    snapshot: Snapshot,
    filter: str,
    sort: str,
    limit: int,
    cursor: str | None,
    tags: Iterable[str] | None,
    labels: Mapping[str, str] | None,
) -> RunPage:
    """Returns a page of the runs of a snapshot; see `RunManager.runs`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_RUNS:
        raise InvalidInputError([wrong_value("limit", limit, f"an integer from 1 to {_MAX_RUNS:,}")])
    briefs = snapshot.briefs.values()
    order, run_filter = _Order.of(sort, briefs), parse_filter(filter, labels, briefs)
    query_hash = hashlib.sha256(json.dumps([filter, sort, sorted((labels or {}).items())]).encode()).hexdigest()[
        :8
    ]
    matches = order.sorted(brief for brief in briefs if run_filter.matches(brief))
    start = 0
    if cursor is not None:
        last_value, run_id = _read_cursor(cursor, query_hash)
        behind = (index for index, brief in enumerate(matches) if order.is_behind(brief, last_value, run_id))
        start = next(behind, len(matches))
    page = matches[start : start + limit]
    next_cursor = None
    if start + limit < len(matches):
        next_cursor = _cursor([query_hash, order.sort_value(page[-1]), page[-1].id])
    if tags is not None:
        selected_tags = tuple(tags)
        page = [brief.with_tags(selected_tags) for brief in page]
    statuses = _statuses(briefs, run_filter, matches)
    num_archived = sum(brief.annotations is not NOT_ANNOTATED and brief.annotations.archived for brief in briefs)
    all_runs = len(briefs) - num_archived
    return RunPage(tuple(page), next_cursor, len(matches), snapshot.version, statuses, all_runs)


def _statuses(briefs: Iterable[RunBrief], run_filter: RunFilter, matches: Iterable[RunBrief]) -> dict[str, int]:
    """Counts by status the runs that the other conditions of the filter match."""
    without_status = run_filter.without("status")
    counted = matches if without_status == run_filter else filter(without_status.matches, briefs)
    return dict(Counter(brief.status for brief in counted))


def select_runs(snapshot: Snapshot, runs: str | Iterable[str | RunReference]) -> list[RunBrief]:
    """Returns the requested runs: by ids, jobs, one id, or by a filter, the newest first."""
    if isinstance(runs, str):
        if runs in snapshot.briefs:
            return [snapshot.briefs[runs]]
        run_filter = parse_filter(runs, briefs=snapshot.briefs.values())
        return _Order.of("-created").sorted(filter(run_filter.matches, snapshot.briefs.values()))
    ids = run_ids(runs)
    missing = [Problem("runs", f"there is no run {run_id!r}") for run_id in ids if run_id not in snapshot.briefs]
    if missing:
        raise InvalidInputError(missing)
    return [snapshot.briefs[run_id] for run_id in ids]


def tags_in(briefs: Iterable[RunBrief], filter: str, sort: str) -> list[str]:
    """Returns the metrics that a filter and an order name, if any run has them."""
    runs = list(briefs)
    keys = [*([_Order.of(sort, runs).key] if sort else []), *parse_filter(filter, briefs=runs).keys]
    tags_of_keys = ([tag for brief in runs if (tag := key.tag(brief)) is not None][:1] for key in keys)
    return [*dict.fromkeys(tag for tags in tags_of_keys for tag in tags)]


def check_names(briefs: Collection[RunBrief], filter: str = "", sort: str = "", tags: Iterable[str] = ()) -> None:
    """Checks that some run has each metric, hyperparameter and label that a query names."""
    requested = [("sort", _Order.of(sort, briefs).key)] if sort else []
    # `keys` leaves out conditions with `!=` and `!~`: runs without the value meet them.
    requested += [("filter", key) for key in parse_filter(filter, briefs=briefs).keys]
    requested += [("tag", RunKey("metrics", tag)) for tag in tags]
    scalars = (tag for brief in briefs for tag, summary in brief.tags.items() if summary.kind == "scalar")
    existing = {"metrics": [*dict.fromkeys(scalars)]}
    for group in ("hparams", "labels"):
        qualified = (f"{group}.{name}" for brief in briefs for name in getattr(brief, group))
        existing[group] = [*dict.fromkeys(qualified)]
    problems = []
    for where, key in requested:
        if key.group not in existing or not briefs or any(map(key.tag, briefs)):
            continue
        if key.group != "metrics" and key.text in existing[key.group]:
            continue
        names = existing[key.group]
        if key.group == "metrics" and where != "tag":
            names = [*names, *(PLAIN_KEYS if where == "filter" else _SORTED_BY), *existing["hparams"]]
        alike = [name for name in names if name.endswith((f"/{key.name}", f".{key.name}"))]
        hint = did_you_mean(alike[:2]) or name_hint(key.text, names)
        # Nothing is reported while no run has a metric, or a label, unless a similar name exists.
        if existing[key.group] or hint.startswith("did you mean"):
            problems.append(Problem(where, f"no run has {key.text!r}", hint))
    if problems:
        raise InvalidInputError(problems)


def _cursor(values: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _read_cursor(cursor: str, query_hash: str) -> tuple[tuple[int, Any] | None, str]:
    hint = "use the `next` of the previous page, with the same filter, sort and labels"
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        cursor_hash, last_value, run_id = values
        last_value = (
            None if last_value is None else (int(last_value[0]), (str if last_value[0] else float)(last_value[1]))
        )
        run_id = str(run_id)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError):
        raise InvalidInputError([Problem("cursor", "is not a cursor", hint)]) from None
    if cursor_hash != query_hash:
        raise InvalidInputError([Problem("cursor", "belongs to another query", hint)])
    return last_value, run_id


def runs_with(briefs: Iterable[RunBrief], tags: Sequence[str]) -> list[RunBrief]:
    """Returns the runs that have each of some metrics, in the order in which members of a group are numbered."""
    return [run for run in briefs if all(tag in run.tags and run.tags[tag].kind == "scalar" for tag in tags)]
