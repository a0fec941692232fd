"""A command whose instances talk to each other all the time, and fail as soon as one of them is gone."""

from __future__ import annotations

__all__ = ["TALKS"]

TALKS = """
exec python3 -c '
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", address[1]))
    peers = [server.accept()[0] for _ in range(size - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection(address, timeout=6)]
            break
        except OSError:
            time.sleep(0.1)
print("up", flush=True)
while True:
    for peer in peers:
        peer.settimeout(6)  # a busy machine may take long, and a lost node is missed after 15 s
        peer.sendall(b".")
        assert peer.recv(1), "an instance is gone"
    time.sleep(0.05)
'
"""
