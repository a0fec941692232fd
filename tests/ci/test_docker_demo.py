"""The demo in Docker takes its engine down, also when a signal ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, time
from tests.docker.demo import engine_until_exit

class Engine:
    def up(self):
        print("up", flush=True)
    def down(self):
        print("down", flush=True)
        sys.stdin.readline()
        print("gone", flush=True)

with engine_until_exit(Engine()):
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_the_engine_down_and_a_second_one_does_not_interrupt_that(number: signal.Signals) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert demo.stdin is not None
    assert demo.stdout is not None
    try:
        assert demo.stdout.readline() == "up\n"
        demo.send_signal(number)
        assert demo.stdout.readline() == "down\n"
        demo.send_signal(number)
        assert demo.communicate("\n", timeout=60)[0] == "gone\n"
        assert demo.returncode == 128 + number
    finally:
        demo.kill()
        demo.wait()
