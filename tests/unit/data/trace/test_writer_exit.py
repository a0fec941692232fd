"""The end of a process that has not closed its writer, and Ctrl-C while a server does not respond."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter


@pytest.mark.parametrize(
    "lines",
    [
        "import numpy; writer.write(a=numpy.arange(5))",
        "writer.write(a=[1, 2, None, 4, 5])",
        "import numpy; writer.write(a=numpy.ma.array([1, 2, 3, 4, 5], mask=[0, 0, 1, 0, 0]))",
    ],
)
def test_rows_of_a_writer_that_was_never_closed_are_stored(tmp_path: Path, lines: str) -> None:
    program = f"""
from pai_sdk.trace import ParquetSink, TraceWriter
writer = TraceWriter({{"a": "bigint"}}, ParquetSink({str(tmp_path)!r}))
{lines}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert ds.dataset(tmp_path, format="parquet").count_rows() == 5


@pytest.fixture
def stalled() -> Iterator[str]:
    """A server that accepts connections, and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


STALLED = """
import sys, time
from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.trace.trace_writer import WaitLimits
from pai_sdk.trace import OdpsSink, TraceHook, TraceToOdpsHook, TraceWriter, trace

sink = OdpsSink("t", project="p", endpoint=sys.argv[1], credentials=Credentials("id", "secret"))

def use(writer):
    writer.waits = WaitLimits(stalled_s=1.0, silent_s=0.0)
    for step in range(3):
        writer.write(a=[step] * 10)
    print("ready", flush=True)
    time.sleep(60)
"""

LEAVING_A_BLOCK = """
with TraceWriter({"a": "bigint"}, sink, block_bytes=80) as writer:
    use(writer)
"""
NEVER_CLOSED = """
writer = TraceWriter({"a": "bigint"}, sink, block_bytes=80)
use(writer)
"""
ENDING_A_HOOK = """
hook = TraceHook(TraceWriter({"a": "bigint"}, sink, block_bytes=80))
try:
    use(hook.writer)
finally:
    print("ending", flush=True)
    hook.end()
"""


@contextlib.contextmanager
def started(program: str, url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", STALLED + program, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == "ready\n"
            yield running
        finally:
            running.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("program", [LEAVING_A_BLOCK, NEVER_CLOSED], ids=["with", "never closed"])
def test_ctrl_c_waits_seconds_and_says_what_is_not_stored(stalled: str, program: str) -> None:
    with started(program, stalled) as running:
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - began < PATIENCE_S / 2
    assert "30 of 30 rows are not stored: the sink has stored nothing for 1 s (blocks: 3 not sent" in errors
    assert "KeyboardInterrupt" in errors


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_the_second_ctrl_c_ends_the_wait_at_once_and_says_what_is_not_stored(stalled: str) -> None:
    with started(ENDING_A_HOOK, stalled) as running:
        running.send_signal(signal.SIGINT)
        assert running.stdout is not None
        assert running.stdout.readline() == "ending\n"
        assert running.stderr is not None
        while "Ctrl-C ends the wait" not in (line := running.stderr.readline()):
            assert line
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - began < PATIENCE_S / 2
    assert "30 of 30 rows are not stored: the wait was interrupted (blocks: 3 not sent" in errors
