"""What instances use of the machine."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._data.rules.evaluator import RuleEvaluator
from pai_sdk._data.rules.rules import IdleGpu
from pai_sdk._service.background import gpu_use, usage
from pai_sdk._service.background.usage import UsageMeter
from pai_sdk._service.background.watch.job_signals import JobSignals, JobTimes
from pai_sdk._service.services.usage import last_sample, read_usage, sample_line
from pai_sdk._service.settings import Pace
from pai_sdk.cli.instances.queue_tables import queue_tables
from pai_sdk.cli.selection.backend import session_on
from tests.service.services import job_body
from tests.support.nvidia import FakeNvidiaSmi, pid_of
from tests.support.waiting import until


def test_a_clock_that_is_put_back_makes_nobody_use_more_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = itertools.count(1_000_000, -3600)
    clock = SimpleNamespace(time=lambda: float(next(hours)), monotonic=time.monotonic)
    monkeypatch.setattr(usage, "time", clock)
    log = tmp_path / "job-master-0.log"
    meter = UsageMeter(every_s=0.1, first_s=0.05)
    meter.start()
    meter.watch("job", {"job-master-0": log})
    busy = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"], env={**os.environ, "PAI_INSTANCE_NAME": "job-master-0"}
    )
    try:
        percent = until(
            lambda: [
                value
                for _, value in read_usage(log, "CpuCoreUsage", start=-1e9, end=1e9, step_s=1.0)
                if value > 0.0
            ]
        )
    finally:
        meter.close()
        busy.kill()
        busy.wait()
    assert max(percent) < 250.0  # times of processes are counted in hundredths of a second


def test_a_look_that_takes_long_makes_nobody_use_more_than_there_is(  # noqa: C901 - small fakes
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that is so busy that the meter stands still between its clock and the processes."""
    now_s = used_s = 0.0

    class Process:
        pid = 1

        def environ(self) -> dict[str, str]:
            return {"PAI_INSTANCE_NAME": "job-master-0"}

        def status(self) -> str:
            return "running"

        def name(self) -> str:
            return "python"

        def oneshot(self) -> AbstractContextManager[None]:
            return nullcontext()

        def memory_info(self) -> SimpleNamespace:
            return SimpleNamespace(rss=1)

        def create_time(self) -> float:
            return 1.0

        def cpu_times(self) -> SimpleNamespace:
            return SimpleNamespace(user=used_s, system=0.0)

    def pass_by(seconds: float) -> None:
        nonlocal now_s, used_s
        now_s += seconds
        used_s += seconds

    def process_iter() -> Iterator[Process]:
        pass_by(5.0)
        yield Process()
        pass_by(7.0)

    monkeypatch.setattr(usage, "time", SimpleNamespace(monotonic=lambda: now_s, time=lambda: now_s))
    monkeypatch.setattr(usage.psutil, "process_iter", process_iter)
    monkeypatch.setattr(usage.os, "cpu_count", lambda: 1)
    log = tmp_path / "job-master-0.log"
    watched = {"job-master-0": usage._Watched(log.with_suffix(".usage"), now_s)}
    for _ in range(4):
        usage._sample(watched, {})
        pass_by(1.0)
    percent = [value for _, value in read_usage(log, "CpuCoreUsage", start=0.0, end=1e9, step_s=1.0)]
    assert len(percent) == 4
    assert all(20 < value <= 100 for value in percent)


def test_a_job_that_has_an_idle_gpu_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = subprocess.Popen(["sleep", "600"], env={**os.environ, "PAI_INSTANCE_NAME": "job-master-0"})
    driver = FakeNvidiaSmi(tmp_path, monkeypatch)
    driver.set_processes(job.pid)
    driver.set_use("37", "250")
    log = tmp_path / "job-master-0.log"
    evaluator = RuleEvaluator([IdleGpu(minutes=0.001)])
    signals = JobSignals(tmp_path, {"job-master-0": log})
    meter = UsageMeter(every_s=0.05, first_s=0.05)
    meter.start()
    meter.watch("job", {"job-master-0": log})

    def codes() -> list[str]:
        evaluator.observe(signals.sample(meter.uses("job"), (), (), JobTimes(), None))
        return [condition.code for condition in evaluator.conditions]

    def use() -> list[float | None]:
        return [each.gpu_percent for each in meter.uses("job").values()]

    try:
        until(lambda: use() == [37.0])
        codes()
        assert codes() == []
        driver.set_use("2", "250")
        until(codes)
        assert codes() == ["IdleGpu"]
        driver.set_use("[N/A]", "250")
        until(lambda: use() == [None])
        assert codes() == []
    finally:
        meter.close()
        job.kill()
        job.wait()


def test_users_see_the_gpus_of_their_jobs(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FakeNvidiaSmi(tmp_path, monkeypatch)
    driver.set_use("37", "250")
    with start("process", pace=Pace(watch_interval_s=0.1)) as client:
        job_id = client.create(job_body("sleep 600", ComputeResource={"EcsSpec": "local", "EcsCount": 2}))
        client.until(job_id, "Running")
        driver.set_processes(until(lambda: pid_of(f"{job_id}-worker-0")))

        def used(metric: str) -> list[float | None]:
            (job,) = client.get("/queue")["started"]
            return [instance.get(metric) for instance in job["instances"]]

        until(lambda: used("gpu_percent") == [None, 37.0])
        assert used("gpu_memory_percent") == [None, 25.0]
        with session_on(client.info) as session:
            (job,) = session.runs.queue().started
            *_, started = queue_tables(session.runs.queue(), 0)
            usage = session.get_job(job_id).usage()
        assert [(each.gpu_percent, each.gpu_memory_percent) for each in job.instances] == [(None, None), (37, 25)]
        assert [row[-2:] for row in started.rows] == [("-", "-"), ("37.0", "25.0")]
        assert [(each.gpu_percent, each.gpu_memory_percent) for each in usage] == [(None, None), (37, 25)]
        without, one = client.get(f"/runs/{job_id}/usage")["instances"]
        assert (without["gpu"], without["gpu_memory"]) == ([], [])
        assert len(one["gpu"]) == len(one["gpu_memory"]) == len(one["times"])
        assert one["gpu_memory"][-1] == 25
        # A divided GPU has no such number; its memory is known.
        driver.set_use("[N/A]", "500")
        until(lambda: used("gpu_memory_percent") == [None, 50.0])
        assert used("gpu_percent") == [None, None]
        driver.set_processes()
        until(lambda: used("gpu_memory_percent") == [None, None])
        client.call("POST", f"/runs/{job_id}/stop", body={})
        client.until(job_id)


def test_samples_of_earlier_versions_have_no_gpus(tmp_path: Path) -> None:
    log = tmp_path / "job-master-0.log"
    log.with_suffix(".usage").write_bytes(
        b"1.000 1.0000 2.0000 3.0000 4.0000\n" + sample_line(2.0, (5, 6, 7, 8, None, 9)) + b"3.000 1.0000 2.0"
    )
    assert last_sample(log, after=0.0) == {
        "CpuCoreUsage": 5,
        "MemoryUsage": 6,
        "DiskReadRate": 7,
        "DiskWriteRate": 8,
        "GpuMemoryUsage": 9,
    }
    series = [read_usage(log, metric, start=0, end=9, step_s=1) for metric in ("MemoryUsage", "GpuMemoryUsage")]
    assert series == [[(1, 2), (2, 6)], [(2, 9)]]


def test_a_driver_that_hangs_delays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\ntouch "$0.started"; exec sleep 600\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    log = tmp_path / "job-master-0.log"
    job = subprocess.Popen(["sleep", "600"], env={**os.environ, "PAI_INSTANCE_NAME": "job-master-0"})
    monkeypatch.setattr(gpu_use, "_TIMEOUT_S", 1.0)
    meter = UsageMeter(every_s=0.05, first_s=0.05)
    meter.start()
    meter.watch("job", {"job-master-0": log})
    try:
        until((tmp_path / "nvidia-smi.started").exists)
        until(lambda: meter.uses("job"))
    finally:
        meter.close()
        job.kill()
        job.wait()
    assert not meter.task.is_alive
