"""What instances use of the machine."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pai_sdk.service import usage
from pai_sdk.service.usage import UsageMeter, read_usage
from tests.waiting import until


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
                for _, value in read_usage(log, "CpuCoreUsage", begin=-1e9, end=1e9, step_s=1.0)
                if value > 0.0
            ]
        )
    finally:
        meter.close()
        busy.kill()
        busy.wait()
    assert max(percent) < 250.0  # times of processes are counted in hundredths of a second
