"""What instances use of the machine."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from pai_sdk._data.rules.evaluator import RuleEvaluator
from pai_sdk._data.rules.rules import IdleGpu
from pai_sdk._service.background import gpu_use, usage
from pai_sdk._service.background.usage import UsageMeter
from pai_sdk._service.background.watch.job_signals import JobSignals, JobTimes
from pai_sdk._service.services.usage import read_usage
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
    percent = fake_nvidia_smi(tmp_path, monkeypatch, job.pid)
    percent.write_text("37")
    log = tmp_path / "job-master-0.log"
    evaluator = RuleEvaluator([IdleGpu(minutes=0.001)])
    signals = JobSignals(tmp_path, {"job-master-0": log})
    meter = UsageMeter(every_s=0.05, first_s=0.05, gpu_every_s=0.05)
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
        percent.write_text("2")
        until(codes)
        assert codes() == ["IdleGpu"]
        percent.write_text("[N/A]")
        until(lambda: use() == [None])
        assert codes() == []
    finally:
        meter.close()
        job.kill()
        job.wait()


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


def fake_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, pid: int) -> Path:
    """A program of that name on PATH: one GPU, which this process has; returns the file with its use."""
    program, percent = folder / "nvidia-smi", folder / "percent"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'  --query-compute-apps=*) echo "{pid}, GPU-1"; echo "[N/A], GPU-2" ;;\n'
        f'  --query-gpu=*) echo "GPU-1, $(cat {percent})"; echo "GPU-2, 99" ;;\n'
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return percent
