"""A wire of a chosen length: a TCP relay that lets all bytes arrive later, and counts requests.

As a program of its own (`python -m tests.benchmarks.relay PORT SECONDS`) it takes nothing from who is measured.
The first line of its output is its port; for each line of input it answers with the requests since the last one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from types import TracebackType

__all__ = ["Relay"]

_CHUNK_BYTES = 1 << 20  # large: of a large file, the relay itself must cost little


class Relay:
    """A relay on a port of its own.

    Args:
        port: of the server, on this machine.
        round_trip_s: what is added to each way there and back.
    """

    def __init__(self, port: int, round_trip_s: float) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.relay", str(port), str(round_trip_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def requests(self) -> int:
        """How many requests passed since this was asked last."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()


class _Wire:
    def __init__(self, port: int, round_trip_s: float) -> None:
        self._port = port
        self._one_way_s = round_trip_s / 2
        self.requests = 0

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * self._one_way_s)  # a connection comes up by one round trip
        there, back = await asyncio.open_connection("127.0.0.1", self._port, limit=_CHUNK_BYTES)
        turn = {"client": False}
        await asyncio.gather(
            self._carry(reader, back, turn, from_client=True),
            self._carry(there, writer, turn, from_client=False),
        )

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        turn: dict[str, bool],
        *,
        from_client: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.create_task(self._deliver(under_way, writer))
        try:
            while data := await reader.read(_CHUNK_BYTES):
                # What a client says after it was silent or answered is a new request.
                if from_client and not turn["client"]:
                    self.requests += 1
                turn["client"] = from_client
                under_way.put_nowait((loop.time() + self._one_way_s, data))
        except ConnectionError:
            pass
        under_way.put_nowait((loop.time() + self._one_way_s, b""))
        await arriving

    async def _deliver(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                due, data = await under_way.get()
                if (left := due - loop.time()) > 0:
                    await asyncio.sleep(left)
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()


async def _serve(port: int, round_trip_s: float) -> None:
    wire = _Wire(port, round_trip_s)
    server = await asyncio.start_server(wire.connect, "127.0.0.1", 0, backlog=128, limit=_CHUNK_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        count, wire.requests = wire.requests, 0
        print(count, flush=True)
    os._exit(0)  # who measured is gone, and what is under way with it


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
