"""`make demo-docker`: the demo in Docker, on a private engine that is gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docker.engine import BASE_IMAGE, Engine, why_not


def main() -> int:
    """Start the engine, run the demo, take the engine down."""
    reason = why_not()
    if reason:
        print(f"the demo in Docker cannot run here: {reason}", file=sys.stderr)
        return 1
    print("starting a Docker engine; its image is made once, in about a minute")
    engine = Engine(Path(tempfile.mkdtemp(prefix="pai-demo-")))
    try:
        engine.up()
        engine.load_base()
        command = [sys.executable, "-m", "pai_sdk", "demo", "--instance-type", "local", "--image", BASE_IMAGE]
        return subprocess.run(command, env={**os.environ, "DOCKER_HOST": engine.socket}, check=False).returncode
    finally:
        engine.down()


if __name__ == "__main__":
    sys.exit(main())
