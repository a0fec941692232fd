"""Import time: a fresh process that imports, less a bare start of the same Python."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks import peers
from tests.benchmarks.harness import Row

REPETITIONS = 15

PACKAGE = Row("import pai_sdk")
OURS = Row("from pai_sdk import Estimator, Processor", at_most=0.15)
REQUESTS = Row("import requests")
ALIPAI = Row("from pai.estimator import Estimator (alipai)")
RATIO = Row("alipai / pai_sdk", unit="times", at_least=10)
ROWS = (PACKAGE, OURS, REQUESTS, ALIPAI, RATIO)


def prepare(cache: Path) -> None:
    peers.ALIPAI.install(cache)


def measure(cache: Path) -> dict[str, float | str]:
    start = _seconds(sys.executable, "")
    values: dict[str, float | str] = {
        row.name: _seconds(sys.executable, row.name) - start for row in (PACKAGE, OURS, REQUESTS)
    }
    theirs = peers.ALIPAI.python(cache)
    if isinstance(theirs, str):
        return {**values, ALIPAI.name: theirs, RATIO.name: theirs}
    took = _seconds(str(theirs), "from pai.estimator import Estimator") - _seconds(str(theirs), "")
    return {**values, ALIPAI.name: took, RATIO.name: took / float(values[OURS.name])}


def _seconds(python: str, statement: str) -> float:
    started = time.perf_counter()
    subprocess.run([python, "-c", statement], check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started
