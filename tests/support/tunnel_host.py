"""A host with one instance that can be entered, for `python -m tests.support.tunnel_host SOCKET`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pai_sdk._host.agent.tunnel.job_view import InstanceView
from pai_sdk._host.agent.tunnel.server import TunnelServer, close_on_signal
from pai_sdk._host.agent.tunnel.serving import handlers
from pai_sdk._host.agent.tunnel.spawner import Spawner, run
from pai_sdk.errors import TunnelClosedError

INSTANCE = "train1-master-0"


def serve(spawner: Spawner) -> None:
    server = TunnelServer(Path(sys.argv[1]), handlers(spawner))
    close_on_signal(server, TunnelClosedError("JobEnded", "the job has ended"))
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    subprocess.Popen(["sleep", "3600"], env={**os.environ, "PAI_INSTANCE_NAME": INSTANCE})
    sys.exit(run(InstanceView(os.getpid(), INSTANCE), serve))
