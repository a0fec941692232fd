"""Traces whose files differ, are damaged, or were written by processes that were killed."""

from __future__ import annotations

import logging
import pickle
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pai_sdk._data.storage.store import LocalStore, open_store
from pai_sdk._data.trace.parquet import ParquetSink
from pai_sdk._data.trace.trace_data import TraceData, read_trace
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk.errors import InvalidInputError, TraceError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

Write = Callable[..., None]


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}"


@pytest.fixture
def write(folder: str) -> Write:
    def written(
        run_id: str, types: dict[str, str], partition: dict[str, str] | None = None, **values: Any
    ) -> None:
        with TraceWriter(types, ParquetSink(folder, partition=partition), run_id=run_id) as writer:
            writer.write(values)

    return written


def by_run(trace: TraceData) -> dict[str, dict[str, Any]]:
    return {row.pop("run"): row for row in trace.to_arrow().to_pylist()}


def test_columns_that_a_run_has_not_are_null(folder: str, write: Write) -> None:
    write("r1", {"step": "bigint", "loss": "double"}, step=[1], loss=[0.5])
    write("r2", {"step": "bigint", "word": "string"}, {"dt": "1"}, step=[2], word=["a"])
    trace = read_trace(folder)
    assert sorted(trace.schema.names) == ["dt", "loss", "run", "step", "word"]
    assert by_run(trace) == {
        "r1": {"step": 1, "loss": 0.5, "word": None, "dt": None},
        "r2": {"step": 2, "loss": None, "word": "a", "dt": "1"},
    }
    query = "SELECT a.step, b.word FROM trace a LEFT JOIN trace b USING (step) ORDER BY step"
    assert trace.query(query).fetchall() == [(1, None), (2, "a")]
    assert trace.query("SELECT step FROM trace WHERE dt = '1'").fetchall() == [(2,)]
    assert trace.rows_of("SELECT count(*) AS n FROM trace WHERE run = 'r1'", 5).to_pylist() == [{"n": 1}]
    assert trace.head(5).num_rows == 2
    assert len(trace.to_pandas()) == 2


@pytest.mark.parametrize(
    ("one", "first", "other", "second", "expected"),
    [
        ("bigint", [3], "double", [0.5], (3.0, 0.5)),
        ("smallint", [3], "bigint", [1 << 40], (3, 1 << 40)),
        ("float", [0.5], "double", [0.1], (0.5, 0.1)),
        ("decimal(10,2)", [Decimal("1.50")], "bigint", [2], (Decimal("1.50"), Decimal("2.00"))),
        ("array<float>", [[0.5]], "array<double>", [[0.1]], ([0.5], [0.1])),
        (
            "struct<a:int>",
            [{"a": 1}],
            "struct<a:bigint,b:string>",
            [{"a": 2, "b": "x"}],
            ({"a": 1, "b": None}, {"a": 2, "b": "x"}),
        ),
        ("map<string,int>", [[("k", 1)]], "map<string,bigint>", [[("k", 2)]], ([("k", 1)], [("k", 2)])),
    ],
)
@pytest.mark.parametrize("is_swapped", [False, True])
def test_numbers_get_the_wider_type(
    folder: str, write: Write, one: str, first: Any, other: str, second: Any, expected: Any, is_swapped: bool
) -> None:
    names = ("r2", "r1") if is_swapped else ("r1", "r2")  # files are read in the order of their paths
    write(names[0], {"x": one}, x=first)
    write(names[1], {"x": other}, x=second)
    found = by_run(read_trace(folder))
    assert (found[names[0]]["x"], found[names[1]]["x"]) == expected


def test_types_that_do_not_go_together_are_named(folder: str, write: Write) -> None:
    write("r1", {"id": "string", "n": "bigint"}, id=["a"], n=[1])
    write("r2", {"id": "bigint", "n": "bigint"}, id=[1], n=[2])
    trace = read_trace(folder)
    for read in (lambda: trace.schema, trace.to_arrow, trace.head, lambda: trace.query("SELECT n FROM trace")):
        with pytest.raises(InvalidInputError, match=r"column 'id': is string in run=r1/.*, and int64 in run=r2/"):
            read()


def test_a_partition_is_text_in_all_runs(folder: str, write: Write) -> None:
    write("r1", {"n": "bigint"}, {"dt": "1"}, n=[1])
    write("r2", {"n": "bigint", "dt": "string"}, n=[2], dt=["2"])
    assert {run: row["dt"] for run, row in by_run(read_trace(folder)).items()} == {"r1": "1", "r2": "2"}
    write("r3", {"n": "bigint", "dt": "bigint"}, n=[2], dt=[3])
    with pytest.raises(InvalidInputError, match="column 'dt'"):
        read_trace(folder).to_arrow()


def test_a_number_that_is_not_exact_is_an_error(folder: str, write: Write) -> None:
    write("r1", {"step": "bigint", "id": "bigint"}, step=[1], id=[2**53 + 1])
    write("r2", {"step": "bigint", "id": "double"}, step=[2], id=[0.5])
    trace = read_trace(folder)
    with pytest.raises(InvalidInputError, match=r"column 'id': in run=r1/.* it is int64, .* double"):
        trace.to_arrow()
    assert sorted(trace.to_arrow(columns=["step"])["step"].to_pylist()) == [1, 2]


def test_columns_come_in_the_order_that_is_asked_for(folder: str, write: Write) -> None:
    write("r1", {"step": "bigint", "loss": "double", "word": "string"}, step=[1], loss=[0.5], word=["a"])
    trace = read_trace(folder)
    assert trace.to_arrow(["run", "loss", "step"]).to_pylist() == [{"run": "r1", "loss": 0.5, "step": 1}]
    assert list(trace.to_pandas(columns=["word", "step"])) == ["word", "step"]
    with refused(InvalidInputError, "column 'lost'"):
        trace.to_arrow(["lost"])
    with pytest.raises(InvalidInputError, match="columns"):
        trace.to_arrow("loss")


@pytest.mark.parametrize("content", [b"", b"no Parquet", b"PAR1" + bytes(100) + b"PAR1", "cut"], ids=str)
def test_a_damaged_file_is_left_out_and_named(
    folder: str, write: Write, content: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    write("r1", {"n": "bigint"}, n=[1])
    store = open_store(folder)
    if content == "cut":
        content = b"".join(store.read(next(store.list()).path))[:-20]
    store.write("run=r1/another.parquet", content)
    trace = read_trace(folder)
    assert trace.to_arrow()["n"].to_pylist() == [1]
    assert list(trace.left_out) == ["run=r1/another.parquet"]
    assert "1 left out" in repr(trace)
    assert "run=r1/another.parquet: not read" in caplog.text


def test_nothing_but_damaged_files_is_no_trace(folder: str) -> None:
    open_store(folder).write("run=r1/another.parquet", b"no Parquet")
    with pytest.raises(
        TraceError, match=r"no trace that can be read; run=r1/another\.parquet: it is not a Parquet"
    ):
        read_trace(folder).to_arrow()


def test_a_file_outside_of_all_runs_is_left_out(
    folder: str, write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"mean": ["high"], "n": ["one"]}), tmp_path / "mine")
    open_store(folder).write("means.parquet", (tmp_path / "mine").read_bytes())
    assert read_trace(folder).to_arrow().num_rows == 1  # there is nothing else
    write("r1", {"n": "bigint"}, n=[1])
    trace = read_trace(folder)
    assert trace.to_arrow().to_pylist() == [{"n": 1, "run": "r1"}]
    assert trace.left_out == {"means.parquet": "it is not in the folder of a run"}
    assert "means.parquet: not read" in caplog.text


def test_a_file_that_is_removed_while_it_is_read(tmp_path: Path) -> None:
    with TraceWriter({"n": "bigint"}, ParquetSink(tmp_path), run_id="r1") as writer:
        writer.write(n=[1])
    trace = read_trace(tmp_path)
    assert trace.schema.names == ["n", "run"]
    (tmp_path / trace.paths[0]).unlink()
    with pytest.raises(TraceError, match=r"run=r1/.*\.parquet cannot be read"):
        trace.to_arrow()


def test_a_trace_stays_readable_elsewhere(
    folder: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, thread or process."""
    write("r1", {"n": "bigint"}, n=[1])
    monkeypatch.chdir(tmp_path.parent)
    trace = read_trace(folder if "://" in folder else tmp_path.name)
    monkeypatch.chdir("/")
    with ThreadPoolExecutor(4) as pool:
        assert [table.num_rows for table in pool.map(lambda _: trace.to_arrow(), range(4))] == [1] * 4
    assert pickle.loads(pickle.dumps(trace)).to_arrow().num_rows == 1


def test_only_what_is_asked_for_is_read_from_a_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = f"memory://{tmp_path.name}"
    with TraceWriter({"n": "bigint", "word": "string"}, ParquetSink(folder), run_id="r1") as writer:
        writer.write(n=range(1000), word=[secrets.token_hex(500) for _ in range(1000)])
    read: list[int] = []
    trace = read_trace(folder)
    store = trace._store
    original = type(store).read

    def counted(self: Any, path: str, start: int = 0, end: int | None = None) -> Any:
        for piece in original(self, path, start, end):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(type(store), "read", counted)
    assert trace.query("SELECT sum(n) FROM trace").fetchall() == [(499500,)]
    assert sum(read) < next(store.list()).size_bytes / 2


# ---- processes that are killed

KILLED = """
import sys, time
from pai_sdk.trace import ParquetSink, TraceWriter
writer = TraceWriter({"step": "bigint"}, ParquetSink(sys.argv[1]), run_id="r1", block_bytes=1)
for step in range(10):
    writer.write(step=step)
writer.flush()
for step in range(10, 16):
    writer.write(step=step)
while writer.stats().blocks_stored < 16:
    time.sleep(0.01)
print("stored", flush=True)
time.sleep(600)
"""


def steps(trace: TraceData) -> Counter[int]:
    return Counter(trace.to_arrow()["step"].to_pylist())


def test_a_run_that_is_killed_and_resumed_has_each_step_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "stored\n"
        program.kill()
    caplog.set_level(logging.INFO)
    assert steps(read_trace(tmp_path)) == Counter(range(10))
    assert "and 5 more: not read" in caplog.text
    with TraceWriter({"step": "bigint"}, ParquetSink(tmp_path), run_id="r1", block_bytes=1) as writer:
        for step in range(10, 30):
            writer.write(step=step)
            if step == 12:
                writer.flush()
                assert steps(read_trace(tmp_path)) == Counter(range(13))
    trace = read_trace(tmp_path)
    assert steps(trace) == Counter(range(30))
    assert "6 left out" in repr(trace)
    attempts = trace.with_attempts().query(
        "SELECT _rank, min(step), max(step) FROM trace GROUP BY _rank, _attempt ORDER BY _attempt"
    )
    assert attempts.fetchall() == [(0, 0, 9), (0, 10, 29)]


def test_what_is_not_committed_is_not_read(folder: str, write: Write) -> None:
    session = leave_uncommitted(ParquetSink(folder, partition={"dt": "1"}), "r1", [1])
    with refused(TraceError):
        read_trace(folder)
    write("r1", {"step": "bigint"}, {"dt": "2"}, step=[2])
    assert steps(read_trace(folder)) == Counter([2])
    assert list(read_trace(folder).left_out.values()) == ["its writer has not committed it (yet)"]
    assert steps(read_trace(folder, uncommitted=True)) == Counter([1, 2])
    session.commit([0])
    assert steps(read_trace(folder)) == Counter([1, 2])
    assert not read_trace(folder).left_out


def test_rows_are_read_after_each_flush(folder: str) -> None:
    with TraceWriter({"step": "bigint"}, ParquetSink(folder), run_id="r1", block_bytes=1) as writer:
        for step in range(3):
            writer.write(step=step)
            writer.flush()
            assert steps(read_trace(folder)) == Counter(range(step + 1))


def test_the_files_of_earlier_versions_are_read_always(folder: str, write: Write) -> None:
    write("r1", {"step": "bigint"}, step=[2])
    store = open_store(folder)
    block, marker = sorted(file.path for file in store.list())
    assert marker.endswith("-committed.parquet")
    store.write("run=r1/rank0-0123456789ab-00000.parquet", store.read(block))
    trace = read_trace(folder)
    assert steps(trace) == Counter([2, 2])
    assert not trace.left_out
    newest = trace.with_attempts().query(
        "SELECT count(_attempt) FROM (SELECT * FROM trace QUALIFY "
        "_attempt IS NOT DISTINCT FROM max(_attempt) OVER (PARTITION BY run, step))"
    )
    assert newest.fetchall() == [(1,)]


def leave_uncommitted(sink: ParquetSink, run_id: str, steps: list[int]) -> Any:
    """Blocks as a killed process leaves them."""
    sink.prepare(pa.schema([("step", pa.int64())]), run_id)
    session = sink.open()
    batch = pa.record_batch({"step": steps})
    session.write(0, session.encode([batch]))
    return session


# ---- folders that are being copied


def three_blocks(folder: str) -> list[str]:
    """A commit of three blocks and one of one block; the names of the first one's blocks and its commit."""
    with TraceWriter({"step": "bigint"}, ParquetSink(folder), run_id="r1", block_bytes=1) as writer:
        for step in range(3):
            writer.write(step=step)
        writer.flush()
        first = sorted(file.path for file in open_store(folder).list())
        writer.write(step=3)
    return first


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_commit_counts_when_all_of_its_blocks_are_there(
    folder: str, missing: int, caplog: pytest.LogCaptureFixture
) -> None:
    store, paths = open_store(folder), three_blocks(folder)
    content = b"".join(store.read(paths[missing]))
    store.delete([paths[missing]])
    trace = read_trace(folder)
    assert steps(trace) == Counter([3])
    assert set(trace.left_out) == {*paths} - {paths[missing]}
    assert "3 blocks" in caplog.text
    assert steps(read_trace(folder, uncommitted=True)) == Counter([0, 1, 2, 3]) - Counter([missing])
    store.write(paths[missing], content)
    assert steps(read_trace(folder)) == Counter(range(4))
    assert not read_trace(folder).left_out


def test_a_commit_with_none_of_its_blocks_is_told(folder: str) -> None:
    store, paths = open_store(folder), three_blocks(folder)
    store.delete(paths[:3])
    trace = read_trace(folder)
    assert steps(trace) == Counter([3])
    assert list(trace.left_out) == [paths[3]]
    for file in list(store.list()):
        if file.path != paths[3]:
            store.delete([file.path])
    with pytest.raises(TraceError, match="none of its commits is complete"):
        read_trace(folder)


def test_a_block_with_another_size_is_not_that_of_the_commit(folder: str) -> None:
    store, paths = open_store(folder), three_blocks(folder)
    store.write(paths[1], b"".join(store.read(paths[1]))[:-1])
    trace = read_trace(folder)
    assert steps(trace) == Counter([3])
    assert set(trace.left_out) == set(paths)


def test_the_commits_of_earlier_versions_count_for_the_blocks_that_are_there(folder: str) -> None:
    store, paths = open_store(folder), three_blocks(folder)
    marker = b"".join(store.read(paths[3]))
    store.delete([paths[3]])
    store.write(f"{paths[0].rpartition('-')[0]}-committed.parquet", marker)
    assert steps(read_trace(folder)) == Counter(range(4))
    assert not read_trace(folder).left_out


def test_columns_that_differ_only_in_case_are_one_in_sql(folder: str, write: Write) -> None:
    write("r1", {"step": "bigint", "Loss": "double"}, step=[1], Loss=[0.5])
    write("r2", {"step": "bigint", "loss": "float"}, step=[2], loss=[0.25])
    write("r3", {"step": "bigint"}, step=[3])
    trace = read_trace(folder)
    assert trace.query("SELECT run, loss FROM trace ORDER BY run").fetchall() == [
        ("r1", 0.5),
        ("r2", 0.25),
        ("r3", None),
    ]
    assert trace.query("SELECT count(*) FROM trace WHERE LOSS > 0.3").fetchall() == [(1,)]
    assert trace.with_attempts().query("SELECT count(_attempt), sum(step) FROM trace").fetchall() == [(3, 6)]
    write("r4", {"LOSS": "string"}, LOSS=["high"])
    with refused(InvalidInputError, "column 'loss'"):
        read_trace(folder).query("SELECT loss FROM trace")


def test_a_commit_that_comes_during_the_listing_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths = three_blocks(str(tmp_path))
    original, hidden = LocalStore.list, [{paths[0]}]

    def listed(self: LocalStore, *args: Any, **options: Any) -> Any:
        without = hidden.pop() if hidden else set()
        return (file for file in original(self, *args, **options) if file.path not in without)

    monkeypatch.setattr(LocalStore, "list", listed)
    assert steps(read_trace(tmp_path)) == Counter(range(4))
    assert not caplog.text
