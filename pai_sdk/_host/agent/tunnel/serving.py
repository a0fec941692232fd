"""The program of a tunnel's processes: `python -m pai_sdk._host.agent.tunnel.serving STATE_DIR LISTENER ANCESTOR`.

Standard library only.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.stacks import collect_stacks
from pai_sdk._host.agent.tunnel import ports
from pai_sdk._host.agent.tunnel.children import FUNCTIONS
from pai_sdk._host.agent.tunnel.functions import Functions
from pai_sdk._host.agent.tunnel.job_view import InstanceView
from pai_sdk._host.agent.tunnel.programs import Programs, leader_of
from pai_sdk._host.agent.tunnel.server import Handler, TunnelServer, close_on_signal
from pai_sdk._host.agent.tunnel.spawner import Spawner, run
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk.errors import TunnelClosedError

_IDLE_S = 60.0
_MAX_STACKS_S = 120.0


def main(state_dir: Path, listener: int, ancestor: int) -> int:
    """Serves the tunnels of the job whose supervisor is the ancestor."""
    job = Journal(state_dir).read_job() or {}
    names = [str(instance["instance"]["name"]) for instance in job.get("instances", ())]
    view = InstanceView(ancestor, names[0] if names else "")

    def serve(spawner: Spawner) -> None:
        server = TunnelServer(socket.socket(fileno=listener), handlers(spawner), idle_s=_IDLE_S)
        close_on_signal(server, TunnelClosedError("JobEnded", "the processes of the job have ended"))
        server.serve_forever()

    return run(view, serve)


def handlers(spawner: Spawner) -> Mapping[str, Handler]:
    """Returns the handlers of all kinds of streams."""
    functions = dict.fromkeys(FUNCTIONS, Functions(spawner).serve)
    stacks = _Stacks(spawner)
    return {
        **functions,
        "program": Programs(spawner).serve,
        "connect": ports.connect,
        "listen": ports.listen,
        "stacks": stacks.serve,
    }


class _Stacks:
    """Serves streams of the kind `stacks`: the stacks of an instance's processes, as JSON."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    def serve(self, stream: Stream) -> None:
        """Sends the stacks."""
        leader_of(self._spawner, stream)
        processes = self._spawner.view.processes(stream.tunnel.instance)
        timeout_s = stream.parameters.get("timeout_s")
        is_number = isinstance(timeout_s, (int, float)) and 0 < timeout_s <= _MAX_STACKS_S
        stream.confirm({})
        content = collect_stacks(
            processes,
            native=stream.parameters.get("native") is True,
            timeout_s=float(timeout_s) if timeout_s is not None and is_number else 30.0,
        )
        stream.write(json.dumps(content).encode())
        stream.end()
        stream.send_exit({"code": 0})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
