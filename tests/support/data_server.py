"""TensorBoard's own data server, the program in its wheel `tensorboard-data-server`, asked over gRPC."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import until

__all__ = ["DataServer", "data_server"]

Points = dict[str, list[tuple[float, int, float]]]


@dataclass
class DataServer:
    """A server that has loaded its folder once.

    Attributes:
        stub: its gRPC methods.
        loaded_s: how long it has loaded.
        pid: of its process.
    """

    stub: Any
    loaded_s: float
    pid: int

    def scalars(self) -> dict[str, Points]:
        """Run to tag to points."""
        from tensorboard.data.proto import data_provider_pb2 as messages

        request = messages.ReadScalarsRequest()
        request.plugin_filter.plugin_name = "scalars"
        request.downsample.num_points = 10**9
        answer = self.stub.ReadScalars(request)
        return {
            run.run_name: {
                tag.tag_name: list(zip(tag.data.wall_time, tag.data.step, tag.data.value, strict=True))
                for tag in run.tags
            }
            for run in answer.runs
        }


@contextmanager
def data_server(folder: Path, *flags: str) -> Iterator[DataServer]:
    """Start one, and wait until it has loaded all points of the event files below a folder.

    Args:
        folder: the runs; each folder with event files is one.
        flags: more of its options.
    """
    import grpc
    from tensorboard.data.proto import data_provider_pb2_grpc
    from tensorboard_data_server import server_binary

    with tempfile.TemporaryDirectory() as place:
        port, log = Path(place) / "port", Path(place) / "log"
        options = ["--reload=once", "--samples-per-plugin=scalars=all", "--port=0", f"--port-file={port}", "-v"]
        begin = time.perf_counter()
        with log.open("wb") as output:
            process = subprocess.Popen([server_binary(), f"--logdir={folder}", *options, *flags], stderr=output)
        try:
            until(lambda: b"Finished load cycle" in log.read_bytes(), "the end of loading", pause_s=0.005)
            loaded_s = time.perf_counter() - begin
            options = [("grpc.max_receive_message_length", -1)]
            with grpc.insecure_channel(f"localhost:{int(port.read_text())}", options) as channel:
                stub = data_provider_pb2_grpc.TensorBoardDataProviderStub(channel)
                yield DataServer(stub, loaded_s, process.pid)
        finally:
            process.kill()
            process.wait()
