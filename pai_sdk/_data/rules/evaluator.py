"""Evaluates all rules of one job: samples in, findings out, each condition reported once until it clears."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pai_sdk._data.rules.figures import FigureRules
from pai_sdk._data.rules.log_lines import values_of_lines
from pai_sdk._data.rules.resources import ResourceRules
from pai_sdk._data.rules.rules import NoProgress, OddRank, Rule
from pai_sdk._data.rules.signals import Condition, Finding, Sample
from pai_sdk._data.rules.stalls import StallRules

_LAST_LINES = 10
_MAX_LINE = 500
_STATE_VERSION = 1


class RuleEvaluator:
    """Evaluates rules from samples of one attempt of a job. It has no clock of its own.

    Args:
        rules: one of each kind at most.
        interval_s: the usual time between two samples. Of a longer one, three intervals count: the observer was
            paused, and so may the job have been.

    Example:
        >>> from pai_sdk._data.rules.rules import NoProgress
        >>> from pai_sdk._data.rules.signals import InstanceSample
        >>> evaluator = RuleEvaluator([NoProgress(first_step_s=300)], interval_s=60)
        >>> times = range(0, 420, 60)
        >>> quiet = {"worker-0": InstanceSample(cores=0.0)}
        >>> [finding.code for at in times for finding in evaluator.observe(Sample(at, quiet))]
        ['NoProgress']
    """

    def __init__(self, rules: Iterable[Rule], *, interval_s: float = 10.0) -> None:
        self._rules = {rule.code: rule for rule in rules}
        self._interval_s = interval_s
        self._stalls = StallRules(self._rules)
        self._figures = FigureRules(self._rules)
        self._resources = ResourceRules(self._rules)
        self._raised: dict[tuple[str, str], Condition] = {}
        self._last_lines: dict[str, deque[str]] = {}
        self._last_at_s: float | None = None

    @property
    def needs_stacks(self) -> bool:
        """Returns whether the next sample should have the stacks of all ranks."""
        return self._stalls.needs_stacks

    @property
    def conditions(self) -> Sequence[Condition]:
        """Returns the conditions that are raised now."""
        return [*self._raised.values()]

    def observe(self, sample: Sample) -> list[Finding]:
        """Adds a sample, and returns what it changes."""
        observed_s = 0.0
        if self._last_at_s is not None:
            observed_s = min(max(sample.at_s - self._last_at_s, 0.0), 3 * self._interval_s)
        self._last_at_s = sample.at_s
        for name, instance in sample.instances.items():
            lines = (line.strip()[:_MAX_LINE] for line in instance.lines)
            self._last_lines.setdefault(name, deque(maxlen=_LAST_LINES)).extend(line for line in lines if line)
        printed = [
            point for name, instance in sample.instances.items() for point in values_of_lines(instance.lines, name)
        ]
        self._stalls.observe(sample, observed_s, has_metric=bool(sample.points or printed))
        self._resources.observe(sample, observed_s)
        for point in (*sample.points, *printed):
            self._figures.observe(point)
        return self._changes(sample)

    def _changes(self, sample: Sample) -> list[Finding]:
        current = {(each.code, each.key): each for each in self._conditions(sample) if each.code in self._rules}
        findings = [
            self._finding(condition, "raised") for key, condition in current.items() if key not in self._raised
        ]
        for key, condition in self._raised.items():
            if key not in current:
                findings.append(self._finding(condition, "cleared"))
        self._raised = current
        return findings

    def _conditions(self, sample: Sample) -> Iterator[Condition]:
        yield from self._stalls.conditions(sample)
        yield from self._figures.conditions()
        yield from self._resources.conditions(sample)

    def _finding(self, condition: Condition, status: Any) -> Finding:
        action = self._rules[condition.code].action if condition.code in self._rules else "observe"
        if status == "cleared":
            return Finding(
                condition.code, status, condition.message, action, condition.instance, key=condition.key
            )
        lines = {name: [*each] for name, each in self._last_lines.items() if each}
        evidence = {**condition.evidence, "last_lines": lines}
        return Finding(
            condition.code, status, condition.message, action, condition.instance, evidence, condition.key
        )

    # ---- across restarts of the observer ------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Returns the state as JSON, for `resume`."""
        raised = [[each.code, each.key, each.message, each.instance] for each in self._raised.values()]
        return {
            "version": _STATE_VERSION,
            "stalls": self._stalls.to_json(),
            "figures": self._figures.to_json(),
            "resources": self._resources.to_json(),
            "raised": raised,
            "last_lines": {name: [*lines] for name, lines in self._last_lines.items()},
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continues from a state of `to_json`; the time since then was not observed, and does not count."""
        if state.get("version") != _STATE_VERSION:
            return
        self._stalls = StallRules.from_json(self._rules, state["stalls"])
        self._figures = FigureRules.from_json(self._rules, state["figures"])
        self._resources = replace(ResourceRules(self._rules), **state["resources"])
        for code, key, message, instance in state["raised"]:
            condition = self._raised[code, key] = Condition(code, message, instance, key=key)
            if code in (NoProgress.code, OddRank.code):
                self._stalls.reported[code] = condition
        for name, lines in state["last_lines"].items():
            self._last_lines[name] = deque(lines, maxlen=_LAST_LINES)
