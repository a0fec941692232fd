"""Single rules, with a fake clock: what raises and what clears them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from pai_sdk._data.rules.codec import WatchConfig, default_rules, merged, parse_rules, rules_text
from pai_sdk._data.rules.evaluator import RuleEvaluator
from pai_sdk._data.rules.log_lines import LogProgress
from pai_sdk._data.rules.odd_rank import odd_by_cpu, odd_by_steps
from pai_sdk._data.rules.rules import (
    RULES,
    DiskNearlyFull,
    IdleCpu,
    IdleGpu,
    LateEnd,
    MetricJump,
    NonFiniteMetric,
    NoProgress,
    Rule,
)
from pai_sdk._data.rules.signals import PRINTED, InstanceSample, Point, Sample
from pai_sdk.errors import InvalidInputError


def _events(rule: Rule, samples: Iterable[dict[str, Any]], *, interval_s: float = 60.0) -> list[tuple[int, str]]:
    """Number of the sample and status of each finding."""
    evaluator = RuleEvaluator([rule], interval_s=interval_s)
    events = []
    for number, fields in enumerate(samples):
        instance = {"worker-0": fields.pop("instance", InstanceSample(cores=1.0))}
        sample = Sample(number * interval_s, instance, **fields)
        events += [(number, finding.status) for finding in evaluator.observe(sample)]
    return events


def _points(*values: float, name: str = "loss") -> list[dict[str, Any]]:
    return [{"points": [Point(name, value, step=step)]} for step, value in enumerate(values)]


def test_a_metric_that_is_not_finite_twice_is_raised_and_cleared() -> None:
    values = _points(1.0, math.nan, 1.0, math.nan, math.inf, 1.0)
    assert _events(NonFiniteMetric(), values) == [(4, "raised"), (5, "cleared")]


def test_a_value_of_a_metric_definition_counts_once() -> None:
    line = InstanceSample(cores=1.0, lines=["loss=nan"])
    samples = [
        {"points": [Point("loss", math.nan, "worker-0", PRINTED, step)], "instance": line} for step in range(2)
    ]
    assert _events(NonFiniteMetric(), samples) == [(1, "raised")]


@pytest.mark.parametrize("name", ["grad_norm", "best_loss", "loss_scale", "ppl"])
def test_values_that_are_often_infinite_do_not_count_by_default(name: str) -> None:
    values = [math.inf] * 5
    assert _events(NonFiniteMetric(), _points(*values, name=name)) == []
    assert _events(NonFiniteMetric(metrics=(name,)), _points(*values, name=name)) == [(1, "raised")]


def test_a_jump_of_a_loss_is_raised_after_three_points() -> None:
    values = [2.0 + 0.1 * (step % 5) for step in range(40)]
    assert _events(MetricJump(), _points(*values, 90, 90, 90, 2.0)) == [(42, "raised"), (43, "cleared")]
    assert _events(MetricJump(), _points(*values, 90, 90, 2.0)) == []
    assert _events(MetricJump(), _points(*values, 90, 90, 90, name="accuracy")) == []


def test_idle_gpus() -> None:
    idle, busy = InstanceSample(gpu_percent=1.0), InstanceSample(gpu_percent=80.0)
    samples = [{"instance": idle} for _ in range(32)]
    assert _events(IdleGpu(minutes=30), [*samples, {"instance": busy}]) == [(30, "raised"), (32, "cleared")]
    assert _events(IdleGpu(minutes=30), [{"instance": InstanceSample()} for _ in range(90)]) == []


def test_idle_cpus_but_not_of_instances_that_only_sleep() -> None:
    idle = InstanceSample(cores=0.001)
    assert _events(IdleCpu(minutes=30), [{"instance": idle} for _ in range(32)]) == [(30, "raised")]
    sleeper = InstanceSample(cores=0.0, is_placeholder=True)
    assert _events(IdleCpu(minutes=30), [{"instance": sleeper} for _ in range(90)]) == []


def test_a_disk_near_its_limit_is_raised_once() -> None:
    gib = 1 << 30
    free = [50, 19, 21, 19, 21, 40]
    samples = [{"disk_free": each * gib, "disk_total": 1000 * gib} for each in free]
    assert _events(DiskNearlyFull(), samples) == [(1, "raised"), (5, "cleared")]


def test_an_end_beyond_the_time_limit() -> None:
    samples = [{"elapsed_s": 600.0 * n, "fraction": 0.01 * n, "max_run_s": 36_000.0} for n in range(1, 12)]
    assert _events(LateEnd(), samples) == [(6, "raised")]  # from 5 % on, three times
    assert _events(LateEnd(), [{**each, "max_run_s": 90_000.0} for each in samples]) == []


def test_an_end_beyond_the_budget() -> None:
    samples = [{"elapsed_s": 3600.0, "remaining_s": 36_000.0} for _ in range(5)]
    assert _events(LateEnd(budget=50, price_per_hour=10), samples) == [(2, "raised")]
    assert _events(LateEnd(budget=200, price_per_hour=10), samples) == []


def test_lines_that_repeat_a_retry_are_no_progress() -> None:
    progress = LogProgress()
    assert progress.has_progress(["connection refused, retrying in 1 s (attempt 1)"])
    assert not progress.has_progress(["connection refused, retrying in 2 s (attempt 2)", ""])
    assert progress.has_progress(["connection refused, retrying in 4 s (attempt 3)", "step 4"])


def test_a_long_pause_of_the_watcher_does_not_count() -> None:
    rule = NoProgress(first_step_s=600, busy_s=600)
    evaluator = RuleEvaluator([rule], interval_s=10)
    quiet = {"worker-0": InstanceSample(cores=0.0)}
    times = [0, 10, 20, 100_000, 100_010, 100_020]
    assert [finding for at in times for finding in evaluator.observe(Sample(at, quiet))] == []


def test_odd_instances_without_stacks() -> None:
    assert odd_by_steps({"a": 3, "b": 4, "c": 4}) == "a"
    assert odd_by_steps({"a": 3, "b": 3, "c": 4}) is None
    assert odd_by_cpu({"a": 1.0, "b": 0.0, "c": 1.0}) == "b"
    assert odd_by_cpu({"a": 1.0, "b": 0.0}) is None


# ---- rules as text --------------------------------------------------------------------------------------------


def test_rules_survive_their_text() -> None:
    rules = (NoProgress(min_s=60, action="restart", max_restarts=1), MetricJump(metrics=("loss", "val_loss")))
    assert parse_rules(rules_text(rules)) == rules
    assert merged(default_rules(), parse_rules(rules_text(False))) == ()


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InvalidInputError) as error:
        parse_rules('[{"rule": "NoProgres"}, {"rule": "IdleCpu", "minute": 3}, 4]', "watch")
    assert [problem.where for problem in error.value.problems] == ["watch[0].rule", "watch[1].minute", "watch[2]"]


def test_the_rules_of_a_job_replace_those_of_its_workspace() -> None:
    content = {
        "default": [{"rule": "NoProgress", "min_s": 1}],
        "workspaces": {"2": [{"rule": "IdleCpu", "minutes": 2}]},
    }
    config = WatchConfig.parse(content)
    variables = {"PAI_SDK_WATCH": rules_text([NoProgress(min_s=3)])}
    by_code = {rule.code: rule for rule in config.rules("2", variables)}
    assert by_code["NoProgress"] == NoProgress(min_s=3)
    assert by_code["IdleCpu"] == IdleCpu(minutes=2)
    assert len(config.rules("1")) == len(RULES)
    with pytest.raises(InvalidInputError):
        WatchConfig.parse({"workspace": {}})
