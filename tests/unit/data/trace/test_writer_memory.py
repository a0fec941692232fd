"""Memory of rows that wait, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter

FULL = """
import os, sys, threading, time
import numpy as np
from pai_sdk._data.trace.trace_writer import TraceWriter
from tests.unit.data.trace.fake_sink import FakeSink

stop = threading.Event()
types = {f"c{number}": sys.argv[1] for number in range(20)}
values = {"double": np.ones(20), "string": ["abc"] * 20, "array<double>": np.ones((20, 1))}[sys.argv[1]]
step = {name: values for name in types}
writer = TraceWriter(types, FakeSink(before=lambda *_: stop.wait()), block_bytes=4096, memory_bytes=32 << 20)

def memory_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

def feed():
    while True:
        writer.write(step)

writer.write(step)
before = memory_mib()
threading.Thread(target=feed, daemon=True).start()
while writer._sender.used_bytes() < 32 << 20:
    time.sleep(0.05)
fed = writer.stats().rows_fed
time.sleep(0.2)
print(fed, writer.stats().rows_fed, memory_mib() - before, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("type_", ["double", "string", "array<double>"])
def test_memory_of_small_blocks_is_bounded(type_: str) -> None:
    """20 columns and blocks of 4 KiB: there are more Python objects than rows."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, type_], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    fed, later, used_mib = map(float, done.stdout.split())
    assert fed > 1000
    assert later - fed <= 20  # the step whose write blocks
    assert 8 < used_mib < 64  # 32 are allowed
