"""The programs of `bench_trace`: a service of tables, and writers of traces, each in a process of its own.

    python -m tests.benchmarks.trace_writers serve FOLDER
    python -m tests.benchmarks.trace_writers write KIND COLUMNS STEPS PAUSE_S URL

`write` prints its numbers as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pai_sdk._core.config.credentials import Credentials

KEY = Credentials("bench-id", "bench-secret")
PROJECT = "bench"
ROWS = 1_000
SCHEMAS = {
    "numbers": {"id": "bigint", "loss": "double", "score": "double"},
    "nested": {"id": "bigint", "name": "string", "vector": "array<double>"},
}
_WIDTH = 32
_BLOCK_BYTES = 64 << 20
_ORIGINAL_BYTES = 50 << 20  # memory of pandas that makes a block
_ORIGINAL_BLOCKS = 2  # of one commit

Step = dict[str, Any]


def serve(folder: str) -> None:
    """Serve tables; print the address first."""
    import uvicorn

    from pai_sdk._service.odps.table_store import TableStore
    from pai_sdk._service.odps.tables_app import TablesApp

    app = TablesApp(TableStore(Path(folder)), {KEY.access_key_id: KEY.access_key_secret})
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="error", access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    print(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)
    thread.join()


def write(kind: str, columns: str, steps: int, pause_s: float, url: str) -> dict[str, float]:
    """Trace steps, and measure what each of them waits for."""
    feeds = _steps(columns)
    writer = _WRITERS[kind](columns, f"{kind}_{columns}_{'paced' if pause_s else 'fast'}", url)
    writer.take(feeds[0])  # threads and processes are started, modules are imported
    time.sleep(0.5)
    waited_ms = []
    began = time.perf_counter()
    for number in range(1, steps):
        before = time.perf_counter()
        writer.take(feeds[number % len(feeds)])
        waited_ms.append(1e3 * (time.perf_counter() - before))
        if pause_s:
            time.sleep(pause_s)
    writer.close()
    took_s = time.perf_counter() - began
    peak_kib = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "rows_s": (steps - 1) * ROWS / took_s,
        "mean_ms": statistics.mean(waited_ms),
        "p50_ms": statistics.median(waited_ms),
        "worst_ms": max(waited_ms),
        "peak_mib": peak_kib / (1 << 20 if sys.platform == "darwin" else 1 << 10),
    }


def _steps(columns: str) -> list[Step]:
    dice = np.random.default_rng(1)
    if columns == "numbers":
        return [
            {"id": np.arange(ROWS), "loss": dice.random(ROWS), "score": dice.normal(size=ROWS)} for _ in range(16)
        ]
    names = [f"sample-{number}" for number in range(ROWS)]
    return [{"id": np.arange(ROWS), "name": names, "vector": dice.random((ROWS, _WIDTH))} for _ in range(16)]


class _Ours:
    """`TraceWriter` into a table, or into files."""

    def __init__(self, columns: str, table: str, url: str, *, sink: str = "zstd") -> None:
        from pai_sdk._data.trace.odps import OdpsSink
        from pai_sdk._data.trace.parquet import ParquetSink
        from pai_sdk._data.trace.trace_writer import TraceWriter

        into = (
            ParquetSink(f"files_{table}")
            if sink == "files"
            else OdpsSink(
                table,
                project=PROJECT,
                endpoint=url,
                tunnel_endpoint=url,
                credentials=KEY,
                compression=sink,
                run_column=None,
            )
        )
        self._writer = TraceWriter(SCHEMAS[columns], into)
        self.take = self._writer.write

    def close(self) -> None:
        stats = self._writer.close()
        assert stats.rows_committed == stats.rows_fed


class _Pyodps:
    """pyodps' own arrow writer, in a thread. Arrays become batches in the thread, after a copy in the step."""

    def __init__(self, columns: str, table: str, url: str) -> None:
        self._made = _table(columns, table, url)
        self._schema = _arrow_schema(columns)
        self._queue: queue.Queue[Step | None] = queue.Queue(64)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def take(self, step: Step) -> None:
        self._queue.put({name: value.copy() for name, value in step.items()})

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        session = _session(self._made)
        blocks, size, writer = 0, 0, session.open_arrow_writer(0)
        while (step := self._queue.get()) is not None:
            batch = pa.RecordBatch.from_arrays([_array(value) for value in step.values()], schema=self._schema)
            writer.write(batch)
            size += batch.nbytes
            if size >= _BLOCK_BYTES:
                writer.close()
                blocks, size = blocks + 1, 0
                writer = session.open_arrow_writer(blocks)
        writer.close()
        session.commit(list(range(blocks + 1)))


class _Original:
    """A process with a queue: Python lists, a data frame for each step, and a commit every two blocks."""

    def __init__(self, columns: str, table: str, url: str) -> None:
        _table(columns, table, url)
        context = multiprocessing.get_context("fork")
        self._queue = context.Queue(1)
        self._process = context.Process(target=_original, args=(columns, table, url, self._queue))
        self._process.start()

    def take(self, step: Step) -> None:
        # It queues the arrays themselves, and so may store what the next step writes into them.
        self._queue.put(step)

    def close(self) -> None:
        self._queue.put(None)
        self._process.join()
        assert self._process.exitcode == 0


def _original(columns: str, table: str, url: str, steps: Any) -> None:
    import pandas as pd

    made, schema = _client(url).get_table(table), _arrow_schema(columns)
    session, blocks, size, buffer = _session(made), 0, 0, []
    while True:
        step = steps.get()
        if step is not None:
            lists = {name: value if isinstance(value, list) else value.tolist() for name, value in step.items()}
            buffer.append(lists)
            size += int(pd.DataFrame(lists).memory_usage(deep=True).sum())
        if buffer and (step is None or size >= _ORIGINAL_BYTES):
            joined = {name: [value for one in buffer for value in one[name]] for name in buffer[0]}
            with session.open_arrow_writer(blocks) as writer:
                writer.write(pa.RecordBatch.from_pandas(pd.DataFrame(joined), schema=schema))
            blocks, size, buffer = blocks + 1, 0, []
        if blocks and (step is None or blocks == _ORIGINAL_BLOCKS):
            session.commit(list(range(blocks)))
            session, blocks = _session(made), 0
        if step is None:
            return


def _client(url: str) -> Any:
    from odps import ODPS

    return ODPS(KEY.access_key_id, KEY.access_key_secret, project=PROJECT, endpoint=url, tunnel_endpoint=url)


def _table(columns: str, table: str, url: str) -> Any:
    types = ", ".join(f"{name} {type_}" for name, type_ in SCHEMAS[columns].items())
    return _client(url).create_table(table, types, if_not_exists=True)


def _session(table: Any) -> Any:
    from odps.tunnel import TableTunnel

    return TableTunnel(table.odps).create_upload_session(table.name)


def _arrow_schema(columns: str) -> pa.Schema:
    from pai_sdk._data.trace.types import trace_schema

    return trace_schema(SCHEMAS[columns])


def _array(value: Any) -> pa.Array:
    if getattr(value, "ndim", 1) == 2:
        ends = np.arange(0, value.size + 1, value.shape[1], dtype=np.int32)
        return pa.ListArray.from_arrays(ends, pa.array(value.reshape(-1)))
    return pa.array(value)


_WRITERS: dict[str, Callable[[str, str, str], Any]] = {
    "ours": _Ours,
    "plain": lambda *which: _Ours(*which, sink="none"),
    "files": lambda *which: _Ours(*which, sink="files"),
    "pyodps": _Pyodps,
    "original": _Original,
}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        kind, columns, steps, pause_s, url = sys.argv[2:]
        print(json.dumps(write(kind, columns, int(steps), float(pause_s), url)))
