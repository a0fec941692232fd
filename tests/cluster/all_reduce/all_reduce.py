"""An all-reduce over plain sockets: each rank adds its part of a vector in every step, and all get the sum.

The same script runs in processes, in Docker, on Ray and on Slurm. Rank 0 saves a checkpoint in every step, and
starts from the newest one it finds.

    python all_reduce.py --steps 50 --pause 0.1
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from array import array
from pathlib import Path

from pai_sdk import checkpoint_dir, get_checkpoint

LENGTH = 1000
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def part_of(rank: int, step: int) -> array[int]:
    """What a rank adds in a step."""
    return array("q", [(rank + 1) * step + index for index in range(LENGTH)])


def added(one: array[int], other: array[int]) -> array[int]:
    return array("q", [a + b for a, b in zip(one, other, strict=True)])


def read(connection: socket.socket) -> array[int]:
    """A vector that another rank has sent."""
    data = bytearray()
    while len(data) < 8 * LENGTH:
        received = connection.recv(8 * LENGTH - len(data))
        if not received:
            raise ConnectionError("a rank is gone")
        data += received
    vector = array("q")
    vector.frombytes(bytes(data))
    return vector


def connect() -> list[socket.socket]:
    """Connect with rank 0, or as rank 0 with all others."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if RANK == 0:
        with socket.create_server(("", address[1])) as server:
            return [server.accept()[0] for _ in range(SIZE - 1)]
    while True:
        try:
            connection = socket.create_connection(address, timeout=10)
        except OSError:
            time.sleep(0.1)
        else:
            connection.settimeout(None)
            return [connection]


def all_reduce(connections: list[socket.socket], part: array[int]) -> array[int]:
    """The sum of the parts of all ranks."""
    if RANK:
        connections[0].sendall(part.tobytes())
        return read(connections[0])
    total = part
    for connection in connections:
        total = added(total, read(connection))
    for connection in connections:
        connection.sendall(total.tobytes())
    return total


def saved() -> tuple[int, array[int]]:
    """The last step whose sum is saved, and the sum."""
    checkpoint = get_checkpoint() if RANK == 0 else None
    if checkpoint is None:
        return 0, array("q", [0] * LENGTH)
    state = json.loads((checkpoint.path / "state.json").read_text())
    return state["step"], array("q", state["vector"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    arguments = parser.parse_args()
    connections = connect()
    step, vector = saved()
    # All ranks take the state of rank 0: the others give zeros.
    vector = all_reduce(connections, vector)
    step = all_reduce(connections, array("q", [step, *[0] * (LENGTH - 1)]))[0]
    print(f"rank {RANK} of {SIZE} begins after step {step}", flush=True)
    while step < arguments.steps:
        step += 1
        vector = added(vector, all_reduce(connections, part_of(RANK, step)))
        print(f"rank {RANK} step {step} sum {sum(vector)}", flush=True)
        if RANK == 0:
            with checkpoint_dir(step) as folder:
                Path(folder, "state.json").write_text(json.dumps({"step": step, "vector": vector.tolist()}))
        time.sleep(arguments.pause)
    if RANK == 0:
        result = {"steps": step, "ranks": SIZE, "sum": sum(vector)}
        Path(os.environ["PAI_OUTPUT_MODEL"], "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:
        # Collective operations of training libraries fail late, too: when they have waited too long for a rank.
        print(f"rank {RANK} lost another rank", flush=True)
        time.sleep(60)
        raise
