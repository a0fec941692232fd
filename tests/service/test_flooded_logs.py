"""The rules of jobs whose logs grow by megabytes between two samples."""

from __future__ import annotations

import math
import time
from pathlib import Path

from pai_sdk._data.rules.evaluator import RuleEvaluator
from pai_sdk._data.rules.log_lines import values_of_lines
from pai_sdk._data.rules.rules import NonFiniteMetric
from pai_sdk._data.rules.signals import InstanceSample, Point, Sample
from pai_sdk._service.background.watch.job_signals import JobSignals, JobTimes

NOISE = "INFO loader: record 123456 of shard 7 has 4096 tokens, and is put into the batch\n" * 1000


class FloodedJob:
    """The log of one instance, and its rules."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "worker-0.log"
        self.log.touch()
        self.signals = JobSignals(folder, {"worker-0": self.log})
        self.evaluator = RuleEvaluator([NonFiniteMetric()])

    def write(self, *texts: str) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.writelines(texts)

    def values(self) -> list[float]:
        sample = self.signals.sample({}, (), (), JobTimes(), None)
        self.codes = [finding.code for finding in self.evaluator.observe(sample)]
        lines = sample.instances["worker-0"].lines
        return [point.value for point in values_of_lines(lines, "worker-0") if point.name == "loss"]


def test_all_values_in_a_flood_of_other_lines_are_observed(tmp_path: Path) -> None:
    job = FloodedJob(tmp_path)
    written = [float(number) for number in range(30)]
    for value in written:
        job.write(NOISE, f"step 3 loss={value}\n", NOISE[:-30])  # ends within a line
    assert job.values() == written
    assert job.values() == []


def test_nan_in_a_flood_is_reported_in_the_next_sample(tmp_path: Path) -> None:
    job = FloodedJob(tmp_path)
    job.write(NOISE, "loss=0.5\n", NOISE)
    job.values()
    assert job.codes == []
    for _ in range(2):
        job.write(NOISE, "\rstep 4:  loss=nan\r" * 2, NOISE)
    assert all(map(math.isnan, job.values()))
    assert job.codes == ["NonFiniteMetric"]


def test_a_flood_of_values_is_sampled(tmp_path: Path) -> None:
    job = FloodedJob(tmp_path)
    job.write("val_loss=0.25 epoch=3\n" * 400_000, "loss=nan\n" * 100_000)
    started_at = time.thread_time()
    values = job.values()
    assert job.codes == ["NonFiniteMetric"]
    assert len(values) < 20_000
    assert time.thread_time() - started_at < 5.0


def test_nan_of_one_metric_among_hundreds_is_reported() -> None:
    evaluator = RuleEvaluator([NonFiniteMetric()])
    points = [Point(f"layer{number}/mean", 0.5, "worker-0", step=1) for number in range(1000)]
    evaluator.observe(Sample(0.0, {"worker-0": InstanceSample()}, points))
    nan = [Point("loss", math.nan, "worker-0", step=step) for step in (1, 2)]
    findings = evaluator.observe(Sample(10.0, {"worker-0": InstanceSample()}, nan))
    assert [finding.code for finding in findings] == ["NonFiniteMetric"]
