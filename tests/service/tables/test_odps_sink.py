"""Traces into the service's tables, through a network with faults; pyodps reads them back.

TRC-04, 05, 10 to 14, 16; TRC-B1, B2, B6, B8, B9, B11, B12, B14, B17, B19.
"""

from __future__ import annotations

import inspect
import json
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.trace.hook import add_to_trace, clear_trace_map
from pai_sdk._data.trace.odps import OdpsSink
from pai_sdk._data.trace.recis import TraceToOdpsHook
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk._service.identity.rate import KeyRates
from pai_sdk.errors import InvalidInputError, TraceError
from tests.faults.proxy import FaultProxy, Faults
from tests.service.tables.conftest import KEY, Tables, serving
from tests.support.waiting import PATIENCE_S, until

FAST = RetryPolicy(deadline_s=60.0, first_pause_s=0.01, longest_pause_s=0.05)
SCHEMA = {"step": "bigint", "score": "array<double>", "word": "string"}


def feed(writer: TraceWriter, steps: int, rows: int = 20) -> list[dict[str, object]]:
    fed = []
    for step in range(steps):
        scores = np.arange(rows * 2, dtype=float).reshape(rows, 2) + step
        words = [f"{step}-{row}" for row in range(rows)]
        writer.write(step=step, score=scores, word=words)
        fed += [
            {"step": step, "score": list(score), "word": word}
            for score, word in zip(scores.tolist(), words, strict=True)
        ]
    return fed


def found(tables: Tables, name: str, partition: str | None = None) -> list[dict[str, object]]:
    rows = [{key: row[key] for key in SCHEMA} for row in tables.rows(name, partition)]
    return sorted(rows, key=lambda row: (row["step"], int(str(row["word"]).split("-")[1])))


@pytest.mark.parametrize("compression", ["none", "zstd", "deflate"])
def test_rows_are_stored_once_with_their_run(tables: Tables, name: str, compression: str) -> None:
    sink = tables.sink(name, partition="dt=1", compression=compression)
    with TraceWriter(SCHEMA, sink, block_bytes=4000, run_id="train-7") as writer:
        fed = feed(writer, 30)
    assert found(tables, name, "dt=1") == fed
    assert {row["run_id"] for row in tables.rows(name, "dt=1")} == {"train-7"}


def test_a_table_without_partitions(tables: Tables, name: str) -> None:
    with TraceWriter(SCHEMA, tables.sink(name)) as writer:
        fed = feed(writer, 3)
    assert found(tables, name) == fed


def test_several_ranks_write_into_one_partition(tables: Tables, name: str) -> None:
    writers = [TraceWriter(SCHEMA, tables.sink(name, partition="dt=1")) for _ in range(3)]
    fed = [feed(writer, 5) for writer in writers]
    for writer in writers:
        writer.close()
    assert len(found(tables, name, "dt=1")) == sum(map(len, fed))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_faults_of_the_network_neither_lose_nor_double_rows(
    tables: Tables, name: str, seed: int, workers: int
) -> None:
    kinds = ("reset", "lost", "truncated", "429", "500", "503", "html", "empty")

    def tunnel(method: str, path: str) -> bool:
        return "upload" in path

    with FaultProxy(tables.url, seed=seed, faults=Faults(rate=0.3, kinds=kinds, only=tunnel)) as proxy:
        sink = tables.sink(name, proxy.url)
        with TraceWriter(SCHEMA, sink, block_bytes=2000, workers=workers, retry=FAST) as writer:
            fed = feed(writer, 20)
        assert writer.stats().retries > 0, proxy.happened
    assert found(tables, name) == fed


class OneInFive(KeyRates):
    """Refuses some requests, by a seed."""

    chance = random.Random(7)

    def acquire(self, key_id: str) -> float:
        with self._lock:
            return float(self.chance.random() < 0.2)


def test_a_service_that_throttles_gets_each_row_once(tmp_path: Path, name: str) -> None:
    with serving(tmp_path, OneInFive(1.0)) as tables:
        with TraceWriter(SCHEMA, tables.sink(name), block_bytes=2000, workers=4, retry=FAST) as writer:
            fed = feed(writer, 20)
        assert writer.stats().retries > 0
        assert found(tables, name) == fed


def test_columns_of_the_table_are_filled_by_name(tables: Tables, name: str) -> None:
    with TraceWriter({"b": "double", "a": "bigint", "c": "string"}, tables.sink(name)) as writer:
        writer.write(a=[1], b=[0.5], c=["x"])
    with TraceWriter({"a": "int", "b": "float"}, tables.sink(name)) as writer:  # another order, other types
        writer.write(a=[2], b=[0.25])
    rows = sorted(tables.rows(name), key=lambda row: row["a"])
    assert [(row["a"], row["b"], row["c"]) for row in rows] == [(1, 0.5, "x"), (2, 0.25, None)]


def after_the_check(writer: TraceWriter) -> TraceError:
    """The error that the next call raises once the table was looked at, in the background."""
    until(lambda: not writer.is_usable, "the look at the table")
    with pytest.raises(TraceError) as next_call:
        writer.write(a=[1])
    with pytest.raises(TraceError):
        writer.close()
    return next_call.value


def test_a_column_that_the_table_has_not(tables: Tables, name: str) -> None:
    with TraceWriter({"a": "bigint"}, tables.sink(name)) as writer:
        writer.write(a=[1])
    writer = TraceWriter({"a": "bigint", "z": "string"}, tables.sink(name), missing="null")
    assert "has no column 'z'; it has: a, run_id" in str(after_the_check(writer))
    assert [row["a"] for row in tables.rows(name)] == [1]


@pytest.mark.parametrize(
    ("of_table", "of_trace"),
    [
        ("bigint", "double"),
        ("float", "double"),
        ("int", "bigint"),
        ("double", "bigint"),
        ("string", "bigint"),
        ("array<bigint>", "bigint"),
        ("array<float>", "array<double>"),
        ("decimal(10,2)", "decimal(10,4)"),
        ("datetime", "timestamp"),
    ],
)
def test_a_type_of_the_table_that_cannot_store_the_values(
    tables: Tables, name: str, of_table: str, of_trace: str
) -> None:
    with TraceWriter({"a": of_table}, tables.sink(name, run_column=None)) as writer:
        writer.flush()  # no rows
    until(lambda: tables.client().exist_table(name), "the table")
    writer = TraceWriter({"a": of_trace}, tables.sink(name, run_column=None), missing="null")
    until(lambda: not writer.is_usable, "the look at the table")
    with pytest.raises(TraceError) as caught:
        writer.flush()
    assert f"column 'a' is {of_table}, and {of_trace} in the trace" in str(caught.value)
    with pytest.raises(TraceError):
        writer.close()


def test_a_wrong_key_is_raised_by_the_next_call_without_retries(tables: Tables, name: str) -> None:
    sink = OdpsSink(name, project="shop", endpoint=tables.url, credentials=Credentials("test-id", "hunter2"))
    writer = TraceWriter({"a": "bigint"}, sink)
    error = after_the_check(writer)
    assert "check the access key secret" in str(error)
    assert isinstance(error.__cause__, TraceError)
    assert not error.__cause__.retryable
    assert writer.stats().retries == 0
    assert "hunter2" not in str(error)


def test_the_table_is_made_with_the_writer(tables: Tables, name: str) -> None:
    """TRC-05."""
    with TraceWriter({"a": "bigint"}, tables.sink(name, partition="dt=1")):
        until(lambda: tables.client().exist_table(name), "the table")
        until(lambda: tables.client().get_table(name).exist_partition("dt=1"), "the partition")


def test_a_service_that_starts_after_the_writer(tmp_path: Path, name: str) -> None:
    """A look that finds no server does not end the writer: the first block tries again."""
    is_down = [True]
    faults = Faults(rate=1.0, kinds=("reset",), only=lambda method, path: bool(is_down))
    with serving(tmp_path) as tables, FaultProxy(tables.url, seed=1, faults=faults) as proxy:
        writer = TraceWriter({"a": "bigint"}, tables.sink(name, proxy.url), retry=FAST)
        until(lambda: proxy.happened, "the look at the table")
        is_down.clear()
        writer.write(a=[1])
        writer.close()
        assert [row["a"] for row in tables.rows(name)] == [1]


def test_nothing_listens(name: str) -> None:
    sink = OdpsSink(name, project="shop", endpoint="http://127.0.0.1:9", credentials=KEY)
    writer = TraceWriter({"a": "bigint"}, sink, retry=RetryPolicy(deadline_s=0.1, longest_pause_s=0.01))
    writer.write(a=[1])
    with pytest.raises(TraceError, match="1 of 1 rows are not stored"):
        writer.close()


def test_mistakes_are_told_before_anything_is_sent(tables: Tables) -> None:
    with pytest.raises(InvalidInputError) as caught:
        OdpsSink("", project="", endpoint="http://x", partition="dt", compression="lz9")
    assert [problem.where for problem in caught.value.problems] == ["table", "project", "compression", "partition"]
    with pytest.raises(InvalidInputError, match="is also a partition"):
        TraceWriter({"dt": "string"}, tables.sink("t", partition="dt=1"))


def test_the_secret_is_in_no_text(tables: Tables) -> None:
    sink = OdpsSink("t", project="shop", endpoint=tables.url, credentials=Credentials("test-id", "hunter2"))
    assert "hunter2" not in repr(sink) + repr(vars(sink))


def test_a_sink_can_be_sent_to_another_process(tables: Tables, name: str) -> None:
    sink = pickle.loads(pickle.dumps(tables.sink(name)))
    with TraceWriter({"a": "bigint"}, sink) as writer:
        writer.write(a=[7])
    assert [row["a"] for row in tables.rows(name)] == [7]


def test_two_hooks_under_the_names_of_recis(tables: Tables, name: str) -> None:
    def hook(suffix: str, field: str) -> TraceToOdpsHook:
        config = {
            "access_id": KEY[0],
            "access_key": KEY[1],
            "project": "shop",
            "end_point": tables.url,
            "table_name": f"{name}_{suffix}",
        }
        return TraceToOdpsHook(config, [field], ["array<double>"], worker_num=2)

    hooks = hook("one", "x"), hook("two", "y")
    assert all(each.check_alive() and each.writer_num == 2 for each in hooks)
    for step in range(5):
        add_to_trace("x", np.full((2, 3), step))
        add_to_trace("y", [[float(step)]])
        for each in hooks:
            each.after_step()
    for each in hooks:
        each.end()
    assert len(tables.rows(f"{name}_one")) == 10
    assert sorted(row["y"] for row in tables.rows(f"{name}_two")) == [[0.0], [1.0], [2.0], [3.0], [4.0]]


def test_keys_that_a_configuration_lacks(tables: Tables) -> None:
    with pytest.raises(KeyError, match="access_key"):
        TraceToOdpsHook({"access_id": "a", "project": "p", "end_point": "e", "table_name": "t"}, ["x"], ["int"])
    with pytest.raises(InvalidInputError, match="has 1 items, but there are 2 fields"):
        TraceToOdpsHook(
            {"access_id": "a", "access_key": "b", "project": "p", "end_point": "e", "table_name": "t"},
            ["x", "y"],
            ["int"],
        )


CRASHING = """
import sys
from pai_sdk._core.config.credentials import Credentials
from pai_sdk.trace import OdpsSink, TraceWriter
url, table = sys.argv[1:]
key = Credentials("test-id", "test-secret")
sink = OdpsSink(table, project="shop", endpoint=url, tunnel_endpoint=url, credentials=key)
writer = TraceWriter({"a": "bigint"}, sink, block_bytes=800)
step = 0
while True:
    for _ in range(10):
        writer.write(a=[step] * 100)
    writer.flush()
    step += 1
    print(step, flush=True)
"""


def test_a_killed_writer_leaves_whole_commits(tables: Tables, name: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", CRASHING, tables.url, name], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    for _ in range(3):
        assert program.stdout.readline()
    time.sleep(0.02)
    program.kill()
    told = 3 + len(program.stdout.read().splitlines())
    program.wait()
    program.stdout.close()
    values = [row["a"] for row in tables.rows(name)]
    steps = set(values)
    assert all(values.count(step) == 1000 for step in steps)
    assert steps >= set(range(told))


def test_rows_of_a_writer_that_was_never_closed_are_stored(tables: Tables, name: str) -> None:
    program = """
import sys
import numpy
from pai_sdk._core.config.credentials import Credentials
from pai_sdk.trace import OdpsSink, TraceWriter
url, table = sys.argv[1:]
key = Credentials("test-id", "test-secret")
sink = OdpsSink(table, project="shop", endpoint=url, tunnel_endpoint=url, credentials=key)
writer = TraceWriter({"a": "bigint"}, sink)
writer.write(a=numpy.arange(5))
"""
    command = [sys.executable, "-c", program, tables.url, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(row["a"] for row in tables.rows(name)) == [0, 1, 2, 3, 4]


def test_a_new_table_has_lifecycle_properties_and_text_partitions(tables: Tables, name: str) -> None:
    """TRC-05."""
    sink = tables.sink(name, partition="dt=20261122,rank=0")
    with TraceWriter({"a": "bigint", "v": "array<double>"}, sink) as writer:
        writer.write(a=[1], v=[[0.5]])
    facts = json.loads((tables.root / f"tables/shop/{name}/table.json").read_text())
    assert facts["properties"]["columnar.nested.type"] == "true"
    assert facts["partitions"] == {"dt": "string", "rank": "string"}
    assert facts["columns"] == {"a": "bigint", "v": "array<double>", "run_id": "string"}
    assert tables.client().get_table(name).lifecycle == 365


def test_a_column_of_nulls_and_columns_in_another_order(tables: Tables, name: str) -> None:
    """TRC-B14: the types are the table's, also where the values do not show them."""
    with TraceWriter({"b": "array<double>", "a": "float", "c": "string"}, tables.sink(name)) as writer:
        writer.write(c=[None, None], a=np.array([1.5, 2.5], np.float32), b=[None, None])
        writer.write({"a": [3.5], "b": [[1.0]], "c": ["x"]})
    rows = sorted(tables.rows(name), key=lambda row: row["a"])
    assert [(row["a"], row["b"], row["c"]) for row in rows] == [
        (1.5, None, None), (2.5, None, None), (3.5, [1.0], "x"),
    ]  # fmt: skip


def test_two_flushes_send_each_row_once_and_leave_pyodps_as_it_is(tables: Tables, name: str) -> None:
    """TRC-B9."""
    from odps.tunnel.io import writer as module

    before = {name: dict(vars(kind)) for name, kind in vars(module).items() if isinstance(kind, type)}
    with TraceWriter({"a": "bigint"}, tables.sink(name)) as writer:
        for step in range(3):
            writer.write(a=[step])
            writer.flush()
    assert sorted(row["a"] for row in tables.rows(name)) == [0, 1, 2]
    assert before == {name: dict(vars(kind)) for name, kind in vars(module).items() if isinstance(kind, type)}


def test_the_limits_of_maxcompute_are_kept() -> None:
    """TRC-B12: blocks of 64 MiB, fewer than 20,000 in a session, and sessions younger than a day."""
    assert inspect.signature(TraceWriter).parameters["block_bytes"].default >= 64 << 20
    assert OdpsSink.max_blocks < 20_000
    assert OdpsSink.max_age_s < 24 * 3600


def test_a_key_that_is_renewed_while_rows_are_sent(tables: Tables, name: str) -> None:
    keys = [Credentials("test-id", "test-secret"), Credentials("other-id", "other-secret")]
    url = tables.url
    sink = OdpsSink(name, project="shop", endpoint=url, tunnel_endpoint=url, credentials=lambda: keys[0])
    with TraceWriter({"a": "bigint"}, sink) as writer:
        writer.write(a=[1])
        writer.flush()
        del keys[0]
        tables.keys["other-id"] = "other-secret"
        old = tables.keys.pop("test-id")
        try:
            writer.write(a=[2])
            writer.flush()
        finally:
            tables.keys["test-id"] = old
    assert sorted(row["a"] for row in tables.rows(name)) == [1, 2]


def test_a_failed_writer_is_a_value_error_and_the_hook_tells_its_figures(tables: Tables, name: str) -> None:
    """TRC-10, TRC-11, TRC-13."""
    config = {
        "access_id": KEY[0],
        "access_key": KEY[1],
        "project": "shop",
        "end_point": tables.url,
        "table_name": name,
    }
    hook = TraceToOdpsHook(config, ["a"], ["bigint"], worker_num=2, size_threshold=80)
    assert (len(hook.writers), hook.writer_num, hook.queue.maxsize) == (2, 2, 2)
    for each in hook, *hook.writers:
        facts = each.table_name, each.fields, each.types, each.partition, each.size_threshold
        assert facts == (name, ["a"], ["bigint"], None, 80)
    assert [writer.is_alive() for writer in hook.writers] == [True, True]
    add_to_trace("a", [1])
    assert hook.buffered_size == 0
    hook.after_step()
    assert hook.buffered_size == sum(writer.buffered_size for writer in hook.writers) == 8
    assert [writer.buffer for writer in hook.writers] == [[{"a": [1]}], []]
    hook.writers[0].flush()
    assert (hook.write_count, hook.buffered_size) == (1, 0)
    assert sum(writer.write_count for writer in hook.writers) == 1
    assert [writer.buffer for writer in hook.writers] == [[], []]
    hook.queue.put({"a": [2]})
    hook.queue.put(None)
    hook.writers[1].write({"a": (3,)})
    assert (hook.queue.qsize(), hook.queue.empty(), hook.queue.full()) == (0, True, False)
    hook.writers[1].flush(force=True)
    assert sorted(row["a"] for row in tables.rows(name)) == [1, 2, 3]
    tables.client().delete_table(name)
    add_to_trace("a", np.arange(100))
    hook.after_step()
    until(lambda: not hook.check_alive(), "the failure")
    add_to_trace("a", [2])
    with pytest.raises(ValueError, match="Table not found") as caught:
        hook.after_step()
    assert isinstance(caught.value, TraceError)
    assert isinstance(caught.value.__cause__, TraceError)
    clear_trace_map()
    with pytest.raises(ValueError, match="Table not found"):
        hook.after_step()  # also without values
    assert not any(writer.is_alive() for writer in hook.writers)
    with pytest.raises(TraceError, match="100 of 103 rows are not stored"):
        hook.end()
