"""Parses the conditions and keys that filter and sort runs.

    status=Succeeded,Running loss<0.3 metrics.eval/acc.max>=0.9 hparams.lr=0.1 labels.team=nlp name~res

A filter is conditions with spaces between them; all of them must hold. A condition is a key, an operator and a
value, or one word that the id or the name must contain.

| key | value |
|---|---|
| `id`, `name`, `uri`, `status`, `error` | text; `Succeeded` and `Stopped` are `Succeed` and `Terminated` |
| `owner`, `instance_type`, `cause`, `sub_status` | text, of the job |
| `created`, `started`, `updated`, `ended` | `2026-11-22`, `2026-11-22T09:30`, or `-2h`: two hours ago (as below) |
| `damaged`, `nan`, `inf` | the number of damaged ranges, of NaN values, of infinite values |
| `instance_count` | the number of instances of the job |
| `cost` | what the instances of the job have cost, if a run has such a price; else a metric of this name |
| `duration` | seconds, or `90m` (s, m, h, d, w) |
| `tags`, `note`, `archived`, `starred_by` | text, of a job on a service; it may have several tags |
| `hparams.NAME`, `labels.NAME` | numbers are compared as numbers |
| `metrics.TAG`, any other name | the last value; also `.min`, `.max`, `.count`, `.nan`, `.inf` behind it |

Operators: `=` and `!=`, with several values between commas; `<`, `<=`, `>`, `>=`; `~` and `!~`, which match a
substring without regard to case. Names and values that contain spaces or operators are quoted:
`hparams."my lr"=0.1`. A run without the value matches `!=` and `!~` only. A name that
no metric has is that of a hyperparameter or label: `lr=0.1`.
"""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._data.run.watch.records import NOT_ANNOTATED, RunBrief
from pai_sdk._wire.pai.status import SYNONYMS
from pai_sdk.errors import InvalidInputError, Problem

_STRING_KEYS = ("id", "name", "uri", "status", "error", "owner", "instance_type", "cause", "sub_status")
_TIME_KEYS = ("created", "started", "updated", "ended")
_COUNT_KEYS = ("damaged", "nan", "inf", "instance_count")
_DURATION, _COST = "duration", "cost"
_ANNOTATION = "annotation"
_ANNOTATION_KEYS = ("tags", "note", "archived", "starred_by")
PLAIN_KEYS = (*_STRING_KEYS, *_TIME_KEYS, *_COUNT_KEYS, _DURATION, _COST, *_ANNOTATION_KEYS)
"""The keys that every run has."""

_GROUPS = ("hparams", "labels", "metrics")
_STATISTICS = ("min", "max", "count", "nan", "inf")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_OPERATOR = re.compile(r"\s*(!=|!~|<=|>=|==|=|<|>|~)\s*")
_QUOTED = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\])*)\1""", re.DOTALL)
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def metric_value(brief: RunBrief, name: str) -> float | None:
    """Returns a metric of a run: the last value of a tag, or the statistic after it, such as `loss.min`."""
    summary, statistic = brief.tags.get(name), "last"
    if summary is None:
        tag, _, statistic = name.rpartition(".")
        summary = brief.tags.get(tag)
    if summary is None or summary.kind != "scalar":
        return None
    if statistic == "last":
        return None if summary.last is None else summary.last.value
    statistics = {
        "min": summary.min,
        "max": summary.max,
        "count": summary.count,
        "nan": summary.nan_count,
        "inf": summary.inf_count,
    }
    return statistics.get(statistic)


@dataclass(frozen=True)
class RunKey:
    """The key of a condition or of a sort order."""

    group: str  # `text`, `time`, `count`, `duration`, `cost`, `annotation`, `hparams`, `labels` or `metrics`
    name: str

    def value(self, brief: RunBrief) -> Any:
        """Returns the value of a run; None where it has none."""
        if self.group == "metrics":
            return metric_value(brief, self.name)
        if self.group == "hparams":
            return brief.hparams.get(self.name)
        if self.group == "labels":
            return brief.labels.get(self.name)
        if self.group == _ANNOTATION:
            return getattr(brief.annotations, self.name)
        if self.group == "time":
            return getattr(brief, f"{self.name}_at")
        if self.group == _DURATION:
            return brief.duration_s
        if self.name in ("nan", "inf"):
            counts = (
                summary.nan_count if self.name == "nan" else summary.inf_count for summary in brief.tags.values()
            )
            return sum(counts)
        return getattr(brief, self.name)

    @property
    def text(self) -> str:
        """The key as a string, as a user writes it."""
        return f"{self.group}.{self.name}" if self.group in ("hparams", "labels") else self.name

    def tag(self, brief: RunBrief) -> str | None:
        """Returns the metric of a run that the key names, without a suffix such as `.min`; None without one."""
        tag, _, statistic = self.name.rpartition(".")
        for name in (self.name, *([tag] if statistic in _STATISTICS else [])) if self.group == "metrics" else ():
            if name in brief.tags and brief.tags[name].kind == "scalar":
                return name
        return None

    def is_in(self, brief: RunBrief) -> bool:
        """Returns True when a run has the value, even if it is None."""
        return self.name in brief.hparams if self.group == "hparams" else self.value(brief) is not None


def parse_key(text: str, briefs: Collection[RunBrief] = ()) -> RunKey:
    """Parses a key such as `hparams.lr`.

    A name without a known group is a metric, or what else the runs have of this name: a hyperparameter, a label.
    """
    groups_of_names = (
        ("text", _STRING_KEYS),
        ("time", _TIME_KEYS),
        ("count", _COUNT_KEYS),
        (_DURATION, (_DURATION,)),
        (_ANNOTATION, _ANNOTATION_KEYS),
    )
    for group, names in groups_of_names:
        if text in names:
            return RunKey(group, text)
    # Metrics of this name are more common than prices.
    if text == _COST and any(brief.cost is not None for brief in briefs):
        return RunKey(_COST, _COST)
    group, dot, name = text.partition(".")
    if dot and group in _GROUPS and name:
        return RunKey(group, name)
    key = RunKey("metrics", text)
    groups = () if any(map(key.tag, briefs)) else ("hparams", "labels")
    other = next((group for group in groups if any(text in getattr(brief, group) for brief in briefs)), None)
    return key if other is None else RunKey(other, text)


@dataclass(frozen=True)
class _Condition:
    key: RunKey
    operator: str
    values: tuple[Any, ...]

    def holds(self, brief: RunBrief) -> bool:
        # The result of all runs without annotations is computed once: each list of a service has such a condition.
        if self.key.group == _ANNOTATION and brief.annotations is NOT_ANNOTATED:
            return self._holds_without_annotations
        return self._holds(brief)

    @cached_property
    def _holds_without_annotations(self) -> bool:
        return self._holds(RunBrief(""))

    def _holds(self, brief: RunBrief) -> bool:
        is_not = self.operator.startswith("!")
        if not self.key.is_in(brief):
            return is_not
        actual = self.key.value(brief)
        if self.operator in _ORDERS:
            number = _number(actual)
            return number is not None and _ORDERS[self.operator](number, self.values[0])
        # Only annotations have several values: one of the tags must match.
        each = actual if self.key.group == _ANNOTATION and isinstance(actual, tuple) else (actual,)
        if self.operator.endswith("~"):
            texts = [str(item).casefold() for item in each]
            return is_not != any(value in text for value in self.values for text in texts)
        return is_not != any(self._equals(item, value) for value in self.values for item in each)

    def _equals(self, actual: Any, expected: str | float) -> bool:
        number = None if isinstance(actual, bool) else _number(actual)
        if actual is None and isinstance(expected, str):
            return expected.casefold() in ("none", "null")
        if isinstance(expected, float):
            return number == expected or (number is not None and math.isnan(number) and math.isnan(expected))
        if self.key.group == "hparams" and number is not None:
            return number == _number(expected) or str(actual) == expected
        if self.key.name == "status" or not isinstance(actual, str):  # True
            return str(actual).casefold() == expected.casefold()
        return actual == expected


@dataclass(frozen=True)
class _Word:
    text: str

    def holds(self, brief: RunBrief) -> bool:
        return self.text in brief.id.casefold() or self.text in brief.name.casefold()


@dataclass(frozen=True)
class RunFilter:
    """A parsed filter: the conditions, all of which must hold."""

    conditions: tuple[_Condition | _Word, ...] = ()

    @property
    def keys(self) -> list[RunKey]:
        """The keys that a run must have to match."""
        conditions = (condition for condition in self.conditions if isinstance(condition, _Condition))
        # Runs without the value meet a condition with `!=` or `!~`.
        return [condition.key for condition in conditions if not condition.operator.startswith("!")]

    def conditions_on(self, name: str) -> list[tuple[str, tuple[Any, ...]]]:
        """Returns operator and values of the conditions on an annotation."""
        conditions = (condition for condition in self.conditions if isinstance(condition, _Condition))
        key = RunKey(_ANNOTATION, name)
        return [(condition.operator, condition.values) for condition in conditions if condition.key == key]

    def without(self, name: str) -> RunFilter:
        """Returns the filter without its conditions on a key that every run has."""
        return RunFilter(
            tuple(
                condition
                for condition in self.conditions
                if isinstance(condition, _Word) or condition.key != RunKey("text", name)
            )
        )

    def matches(self, brief: RunBrief) -> bool:
        """Returns True for a run that meets all conditions."""
        return all(condition.holds(brief) for condition in self.conditions)


def parse_filter(
    text: str, labels: Mapping[str, str] | None = None, briefs: Collection[RunBrief] = ()
) -> RunFilter:
    """Parses a filter (see the module) and labels that runs must have; an InvalidInputError has all problems.

    `briefs` are the runs to filter, which decide whether `lr` is a metric or a hyperparameter.
    """
    conditions: list[_Condition | _Word] = []
    problems: list[Problem] = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        try:
            condition, at = _condition(text, at, briefs)
            conditions.append(condition)
        except _FilterSyntaxError as error:
            problems.append(Problem(f"filter, character {error.at + 1}", error.message, error.hint))
            at = error.resume_at
        at += len(text[at:]) - len(text[at:].lstrip())
    if problems:
        raise InvalidInputError(problems)
    required_labels = (labels or {}).items()
    conditions += [_Condition(RunKey("labels", name), "=", (str(value),)) for name, value in required_labels]
    return RunFilter(tuple(conditions))


class _FilterSyntaxError(Exception):
    def __init__(self, text: str, at: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.at, self.message, self.hint = at, message, hint
        space = re.compile(r"\s").search(text, at)
        self.resume_at = space.start() if space else len(text)


def _condition(text: str, at: int, briefs: Collection[RunBrief]) -> tuple[_Condition | _Word, int]:
    name, end = _token(text, at, is_key=True)
    match = _OPERATOR.match(text, end)
    if match is None:
        return _Word(name.casefold()), end
    if end == at:
        raise _FilterSyntaxError(text, at, f"there is no name before {match[1]}", "such as status=Running")
    sign = match[1].replace("==", "=")
    key = parse_key(name, briefs)
    values: list[Any] = []
    end = match.end()
    while True:
        start = end
        value, end = _token(text, start, is_key=False)
        if start == end:
            raise _FilterSyntaxError(
                text, start, f"there is no value after {match[0].strip()}", 'the empty string is ""'
            )
        values.append(_value(text, start, key, name, sign, value))
        if not text.startswith(",", end):
            break
        end += 1
    if len(values) > 1 and sign in _ORDERS:
        raise _FilterSyntaxError(text, at, f"{sign} takes one value", "several are for = and !=")
    return _Condition(key, sign, tuple(values)), end


def _token(text: str, at: int, *, is_key: bool) -> tuple[str, int]:
    """Returns a name or a value, in which parts may be quoted, and the end of it."""
    parts: list[str] = []
    while at < len(text):
        char = text[at]
        if char in "\"'":
            quoted = _QUOTED.match(text, at)
            if quoted is None:
                raise _FilterSyntaxError(text, at, f"the quote {char} has no end", f"write {char} behind it")
            parts.append(re.sub(r"\\(.)", r"\1", quoted[2], flags=re.DOTALL))
            at = quoted.end()
        elif char.isspace() or (_OPERATOR.match(text, at) if is_key else char == ","):
            break
        else:
            parts.append(char)
            at += 1
    return "".join(parts), at


def _value(text: str, at: int, key: RunKey, name: str, sign: str, value: str) -> Any:
    is_text = key.group in ("text", "labels", _ANNOTATION) or (key.group == "hparams" and sign not in _ORDERS)
    if sign.endswith("~"):
        if not is_text:
            raise _FilterSyntaxError(
                text, at, f"{sign} applies to strings, and {name} is not a string", "use <, > or ="
            )
        return value.casefold()
    if key.group in ("text", _ANNOTATION) and sign in _ORDERS:
        raise _FilterSyntaxError(text, at, f"{name} is a string, which cannot be ordered", "use = or ~")
    if key.group == "time":
        return _time(text, at, sign, value)
    if is_text:
        return SYNONYMS.get(value.casefold(), value) if key.name == "status" else value
    number = _span_s(value) if key.group == _DURATION else None
    number = _number(value) if number is None else number
    if number is None:
        raise _FilterSyntaxError(text, at, f"{value!r} is not a number", did_you_mean(nearest(name, PLAIN_KEYS)))
    return number


def _time(text: str, at: int, sign: str, value: str) -> float:
    if sign not in _ORDERS:
        raise _FilterSyntaxError(text, at, "a time is compared by <, <=, > or >=")
    if value.startswith("-") and (ago_s := _span_s(value[1:])) is not None:
        return time.time() - ago_s
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        hint = "write 2026-11-22, 2026-11-22T09:30, or -2h for two hours ago"
        raise _FilterSyntaxError(text, at, f"{value!r} is not a time", hint) from None


def _span_s(value: str) -> float | None:
    """Returns the seconds of a text such as `90m`; None for another text."""
    match = _SPAN.fullmatch(value)
    return float(match[1]) * _UNITS_S[match[2]] if match else None


def _number(value: object) -> float | None:
    """Returns a value as a number, also from a string; None for other values."""
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None
