"""Pages of runs: filtered, sorted, and with a cursor that leads to the next page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pai_sdk.base.hints import did_you_mean, name_hint
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.run.watch.filter import PLAIN_KEYS, RunKey, parse_filter, parse_key
from pai_sdk.run.watch.records import RunBrief, RunPage
from pai_sdk.run.watch.snapshot import Snapshot

__all__ = ["check_names", "chosen", "page_of", "tags_in"]

_MOST_RUNS = 100_000
_SORTED_BY = ("id", "name", "created", "updated", "status")


@dataclass(frozen=True)
class _Order:
    """An order of runs: by a key, runs without it at the end, and runs that are equal in it by their ids."""

    key: RunKey
    is_reversed: bool

    @classmethod
    def of(cls, text: str) -> _Order:
        name = text.removeprefix("-")
        if not name:
            hint = "id, name, created, updated, status, hparams.NAME or metrics.TAG; - reverses"
            raise InvalidInputError([Problem("sort", f"is {text!r}", hint)])
        return cls(parse_key(name), text.startswith("-"))

    def place(self, brief: RunBrief) -> tuple[int, Any] | None:
        """Numbers come before texts; None for a run without the value."""
        value = self._value(brief)
        return None if value is None else (int(isinstance(value, str)), value)

    def _value(self, brief: RunBrief) -> float | str | None:
        value = self.key.value(brief)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        if isinstance(value, (bool, int, float)):
            return float(value) if abs(value) < 1e300 else math.copysign(math.inf, value)
        text = str(value)
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
        # Numbers of runs are sorted, not pairs: a thousand pairs a call would wake the garbage collector.
        values = [self._value(brief) for brief in by_id]
        found = []
        for kind in (str, float) if self.is_reversed else (float, str):
            places = [at for at, value in enumerate(values) if isinstance(value, kind)]
            places.sort(key=values.__getitem__, reverse=self.is_reversed)  # type: ignore[arg-type]
            found += [by_id[at] for at in places]
        return found + [by_id[at] for at, value in enumerate(values) if value is None]

    def is_behind(self, brief: RunBrief, place: Any, run_id: str) -> bool:
        """Returns True when a run comes behind the last one of a page."""
        here = self.place(brief)
        if here is None or place is None:
            return (here is None and place is not None) or (here is place and brief.id > run_id)
        if here != place:
            return bool(here > place) != self.is_reversed
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
    """A page of the runs of a snapshot; see `RunManager.runs`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST_RUNS:
        raise InvalidInputError([Problem("limit", f"is {limit!r}", f"a whole number from 1 to {_MOST_RUNS:,}")])
    order, wanted = _Order.of(sort), parse_filter(filter, labels)
    question = hashlib.sha256(json.dumps([filter, sort, sorted((labels or {}).items())]).encode()).hexdigest()[:8]
    found = order.sorted(brief for brief in snapshot.briefs.values() if wanted.matches(brief))
    begin = 0
    if cursor is not None:
        place, run_id = _read_cursor(cursor, question)
        behind = (at for at, brief in enumerate(found) if order.is_behind(brief, place, run_id))
        begin = next(behind, len(found))
    shown = found[begin : begin + limit]
    next_cursor = None
    if begin + limit < len(found):
        next_cursor = _cursor([question, order.place(shown[-1]), shown[-1].id])
    if tags is not None:
        wanted_tags = tuple(tags)
        shown = [brief.with_tags(wanted_tags) for brief in shown]
    return RunPage(tuple(shown), next_cursor, len(found), snapshot.version)


def chosen(snapshot: Snapshot, runs: str | Iterable[str]) -> list[RunBrief]:
    """The runs that are asked for: by ids, by one id, or by a filter, the newest first.

    Raises:
        InvalidInputError: the filter cannot be read, or there are no runs with some of the ids.
    """
    if isinstance(runs, str):
        if runs in snapshot.briefs:
            return [snapshot.briefs[runs]]
        wanted = parse_filter(runs)
        return _Order.of("-created").sorted(filter(wanted.matches, snapshot.briefs.values()))
    ids = list(dict.fromkeys(runs))
    missing = [Problem("runs", f"there is no run {one!r}") for one in ids if one not in snapshot.briefs]
    if missing:
        raise InvalidInputError(missing)
    return [snapshot.briefs[one] for one in ids]


def tags_in(briefs: Iterable[RunBrief], filter: str, sort: str) -> list[str]:
    """The metrics that a filter and an order name, as far as some run has them."""
    keys = [*([_Order.of(sort).key] if sort else []), *parse_filter(filter).keys]
    some = list(briefs)
    found = ([tag for brief in some if (tag := key.tag(brief)) is not None][:1] for key in keys)
    return [*dict.fromkeys(tag for tags in found for tag in tags)]


def check_names(briefs: Collection[RunBrief], filter: str = "", sort: str = "", tags: Iterable[str] = ()) -> None:
    """See that some run has each metric, hyperparameter and label that a question names.

    Nothing is unknown as long as no run has a metric, or a label. A condition with `!=` or `!~` is not looked at,
    since runs without the value meet it.

    Args:
        briefs: all runs.
        filter: as in `RunManager.runs`.
        sort: likewise.
        tags: metrics.

    Raises:
        InvalidInputError: no run has one of them; with the nearest names there are.

    Example:
        >>> check_names([RunBrief("a", hparams={"lr": 0.1})], sort="hparams.rl")
        Traceback (most recent call last):
        pai_sdk.errors.InvalidInputError: sort: no run has 'hparams.rl' (did you mean 'hparams.lr'?)
    """
    asked = [("sort", _Order.of(sort).key)] if sort else []
    asked += [("filter", key) for key in parse_filter(filter).keys]
    asked += [("tag", RunKey("metrics", tag)) for tag in tags]
    scalars = (tag for brief in briefs for tag, one in brief.tags.items() if one.kind == "scalar")
    known = {"metrics": [*dict.fromkeys(scalars)]}
    for group in ("hparams", "labels"):
        named = (f"{group}.{name}" for brief in briefs for name in getattr(brief, group))
        known[group] = [*dict.fromkeys(named)]
    problems = []
    for where, key in asked:
        if key.group not in known or not briefs or any(map(key.tag, briefs)):
            continue
        if key.group != "metrics" and key.text in known[key.group]:
            continue
        names = known[key.group]
        if key.group == "metrics" and where != "tag":
            names = [*names, *(PLAIN_KEYS if where == "filter" else _SORTED_BY), *known["hparams"]]
        alike = [name for name in names if name.endswith((f"/{key.name}", f".{key.name}"))]
        hint = did_you_mean(alike[:2]) or name_hint(key.text, names, intro="there are")
        if known[key.group] or hint.startswith("did you mean"):
            problems.append(Problem(where, f"no run has {key.text!r}", hint))
    if problems:
        raise InvalidInputError(problems)


def _cursor(facts: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(facts).encode()).decode().rstrip("=")


def _read_cursor(cursor: str, question: str) -> tuple[tuple[int, Any] | None, str]:
    hint = "use the `next` of the page before, with the same filter, sort and labels"
    try:
        found = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        asked, place, run_id = found
        place = None if place is None else (int(place[0]), (str if place[0] else float)(place[1]))
        run_id = str(run_id)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError):
        raise InvalidInputError([Problem("cursor", "is not a cursor", hint)]) from None
    if asked != question:
        raise InvalidInputError([Problem("cursor", "is of another question", hint)])
    return place, run_id
