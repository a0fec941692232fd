"""A service of its own whose jobs send without an end, or read nothing; run as `python -m` with a data folder."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from pai_sdk._service.server import Service
from pai_sdk._service.settings import ServiceSettings
from tests.service.tunnel.tunnelling import TunnelledExecutor, as_stream


def flood(end: socket.socket) -> None:
    """Sends as much as the service accepts, and reads nothing."""
    frame = as_stream(bytes(64 << 10))
    with suppress(OSError):
        while True:
            end.sendall(frame)


if __name__ == "__main__":
    service = Service(ServiceSettings(data_dir=Path(sys.argv[1]), port=0), TunnelledExecutor(flood))
    threading.Thread(target=lambda: (sys.stdin.read(), service.stop()), daemon=True).start()
    service.run(on_ready=lambda info: print(info.to_json(), flush=True))
