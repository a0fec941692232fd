"""A running instance without a job, and a server of tunnels into it, as the supervisor starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pai_sdk._host.agent.tunnel import frames, socket_paths
from pai_sdk._host.agent.tunnel.link import ResumableLink, SocketTransport
from pai_sdk._host.agent.tunnel.streams import Tunnel
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
INSTANCE = "train-master-0"
_SERVE = (
    "import sys; from pathlib import Path; sys.path.append(sys.argv[1]); "
    "from pai_sdk._host.agent.tunnel.serving import main; "
    "sys.exit(main(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))"
)


class RunningTunnel:
    """An instance whose working directory is `folder`, and the server of its tunnels."""

    def __init__(self, folder: Path, socket_file: Path, server: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.socket_file = socket_file
        self.server = server

    def dial(self, instance: str = "") -> SocketTransport:
        """Returns a new connection, as `Executor.connect_tunnel` does."""
        transport = SocketTransport(self.connect())
        if instance:
            transport.send(frames.with_json(frames.SELECT, {"instance": instance}))
        return transport

    def connect(self) -> socket.socket:
        return socket_paths.connect(self.socket_file, timeout_s=PATIENCE_S)

    def open(self, dial: Callable[[], SocketTransport] | None = None, *, rejoin_s: float = 30.0) -> Tunnel:
        """Returns a tunnel into the instance."""
        return Tunnel(ResumableLink.connect(dial or self.dial, rejoin_s=rejoin_s))


@contextmanager
def running_tunnel(tmp_path: Path, variables: Mapping[str, str] | None = None) -> Iterator[RunningTunnel]:
    """Runs an instance in `tmp_path/work` and a server of tunnels into it."""
    folder, state = tmp_path / "work", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    (state / "job.json").write_text(json.dumps({"instances": [{"instance": {"name": INSTANCE}}]}))
    given = {
        "PAI_INSTANCE_NAME": INSTANCE,
        "PAI_WORKING_DIR": str(folder),
        "HOME": str(folder),
        **(variables or {}),
    }
    listener = socket_paths.listen(state / "tunnel.sock")
    program = [sys.executable, "-I", "-S", "-c", _SERVE]
    arguments = [str(ROOT), str(state), str(listener.fileno()), str(os.getpid())]
    environment = {"PATH": os.environ["PATH"], **given}
    with (
        subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True) as instance,
        subprocess.Popen(
            [*program, *arguments], env={}, cwd="/", pass_fds=[listener.fileno()], start_new_session=True
        ) as server,
    ):
        listener.close()
        try:
            yield RunningTunnel(folder, state / "tunnel.sock", server)
        finally:
            instance.kill()
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE_S)
