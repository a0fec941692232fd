"""`make demo-docker`: the demo in Docker, on a private engine that is taken down at its end, also by SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.docker.engine import BASE_IMAGE, Engine, why_not

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Start the engine, run the demo, take the engine down."""
    reason = why_not()
    if reason:
        print(f"the demo in Docker cannot run here: {reason}", file=sys.stderr)
        return 1
    print("starting a Docker engine; its image is made once, in about a minute")
    engine = Engine(Path(tempfile.mkdtemp(prefix="pai-demo-")))
    with engine_until_exit(engine):
        engine.load_base()
        command = [sys.executable, "-m", "pai_sdk", "demo", "--instance-type", "local", "--image", BASE_IMAGE]
        return subprocess.run(command, env={**os.environ, "DOCKER_HOST": engine.socket}, check=False).returncode


@contextmanager
def engine_until_exit(engine: Engine) -> Iterator[None]:
    """Runs an engine until the end of the block, or until a signal that would end this process."""
    # Without handlers these signals end the process at once, and leave the engine, which has a session of its own.
    before = {number: signal.signal(number, _exit) for number in _SIGNALS}
    try:
        engine.up()
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        engine.down()
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
