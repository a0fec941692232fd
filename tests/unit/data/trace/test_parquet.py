"""Traces in Parquet files: written, read back, queried."""

from __future__ import annotations

import pickle
from pathlib import Path

import duckdb
import pytest

from pai_sdk._data.run.report.report_session import ReportSession
from pai_sdk._data.trace.parquet import ParquetSink, current_run_id, default_sink
from pai_sdk._data.trace.trace_data import read_trace
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk.errors import InvalidInputError, TraceError
from tests.support.messages import refused
from tests.support.waiting import until

pytestmark = pytest.mark.interpreter

TYPES = {"step": "bigint", "score": "array<float>", "word": "string"}


def write(sink: ParquetSink | None, run_id: str | None = "r1", steps: int = 3) -> TraceWriter:
    with TraceWriter(TYPES, sink, run_id=run_id, block_bytes=1) as writer:
        for step in range(steps):
            writer.write(step=step, score=[[1.0], [2.0, 3.0]], word=["a", None])
    return writer


@pytest.mark.parametrize("where", ["local", "file", "memory"])
def test_rows_come_back_with_their_partitions(tmp_path: Path, where: str) -> None:
    folder = {"local": str(tmp_path), "file": tmp_path.as_uri(), "memory": f"memory://{tmp_path.name}"}[where]
    for run_id in ("r1", "r2"):
        write(ParquetSink(folder, partition={"dt": "20260101"}), run_id)
    trace = read_trace(folder)
    assert len(trace.paths) == 6
    assert trace.to_arrow().num_rows == 12
    rows = trace.to_arrow().sort_by([("run", "ascending"), ("step", "ascending")]).to_pylist()
    assert rows[0] == {"step": 0, "score": [1.0], "word": "a", "dt": "20260101", "run": "r1"}
    assert {row["run"] for row in rows} == {"r1", "r2"}
    query = "SELECT run, count(*) AS n, max(step) AS last FROM trace GROUP BY run ORDER BY run"
    assert trace.query(query).fetchall() == [("r1", 6, 2), ("r2", 6, 2)]
    assert trace.head(3).num_rows == 3
    assert trace.head(100).num_rows == 12
    assert trace.schema.names == ["step", "score", "word", "dt", "run"]
    assert len(trace.to_pandas()) == 12


def test_other_programs_read_the_files(tmp_path: Path) -> None:
    write(ParquetSink(tmp_path))
    found = duckdb.sql(f"SELECT run, sum(step) FROM read_parquet('{tmp_path}/**/*.parquet') GROUP BY run")
    assert found.fetchall() == [("r1", 6)]


def test_ranks_and_writers_do_not_touch_the_files_of_others(tmp_path: Path) -> None:
    write(ParquetSink(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    write(ParquetSink(tmp_path))
    assert all(path.read_bytes() == content for path, content in before.items())
    assert read_trace(tmp_path).to_arrow().num_rows == 12


def test_no_trace_is_an_error(tmp_path: Path) -> None:
    with refused(TraceError):
        read_trace(tmp_path)


def test_a_wrong_query_says_what_is_wrong(tmp_path: Path) -> None:
    write(ParquetSink(tmp_path))
    with pytest.raises(TraceError, match="stepp"):
        read_trace(tmp_path).query("SELECT stepp FROM trace")


@pytest.mark.parametrize("partition", [{"dt": "a/b"}, {"dt": ""}, {"dt": ".."}, {"d=t": "a"}])
def test_partitions_that_cannot_be_folders(partition: dict[str, str]) -> None:
    with refused(InvalidInputError):
        ParquetSink("x", partition=partition)


def test_a_column_cannot_be_a_partition_too(tmp_path: Path) -> None:
    with refused(InvalidInputError, "column 'run'"):
        TraceWriter({"run": "string"}, ParquetSink(tmp_path))


def test_a_run_id_that_leads_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="run"):
        TraceWriter(TYPES, ParquetSink(tmp_path), run_id="../other")


def test_a_sink_can_be_pickled(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    write(sink)
    write(pickle.loads(pickle.dumps(sink)))
    assert read_trace(tmp_path).to_arrow().num_rows == 12


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    # The first block may fail while later steps are still being written.
    with pytest.raises(TraceError, match=r"([246]) of \1 rows are not stored: .* is a file") as caught:
        write(ParquetSink(blocked))
    assert caught.value.rows_committed == 0


def test_without_a_sink_rows_go_into_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = write(None, None)
    assert writer.run_id.startswith("local-")
    assert read_trace(f"runs/{writer.run_id}/trace").to_arrow().num_rows == 6


def test_in_a_job_rows_go_into_its_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_WORKING_DIR", str(tmp_path / "usercode"))
    monkeypatch.setenv("PAI_TRAINING_JOB_ID", "train-1")
    assert current_run_id() == "train-1"
    with refused(TraceError):
        default_sink("train-1")
    monkeypatch.setenv("PAI_OUTPUT_MODEL", str(tmp_path / "model"))
    assert default_sink("train-1").folder == str(tmp_path / "model" / "trace")
    monkeypatch.setenv("PAI_OUTPUT_TRACE", str(tmp_path / "trace"))
    assert default_sink("train-1").folder == str(tmp_path / "trace")


def test_in_a_session_of_reports_rows_go_into_the_folder_of_its_run(tmp_path: Path) -> None:
    with ReportSession(tmp_path / "run-7").bound():
        writer = write(None, None)
    assert writer.run_id == "run-7"
    trace = read_trace(tmp_path / "run-7" / "trace")
    assert set(trace.to_arrow()["run"].to_pylist()) == {"run-7"}


def test_the_files_of_each_rank_have_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_WORKING_DIR", str(tmp_path / "usercode"))
    monkeypatch.setenv("RANK", "3")
    write(ParquetSink(tmp_path / "trace"))
    assert all(Path(path).name.startswith("rank3-") for path in read_trace(tmp_path / "trace").paths)


def test_a_folder_that_cannot_be_opened_is_raised_by_the_next_call() -> None:
    writer = TraceWriter({"a": "bigint"}, ParquetSink("nosuch://bucket/x"))
    until(lambda: not writer.is_usable, "the look at the folder")
    with pytest.raises(TraceError, match="nosuch"):
        writer.write(a=[1])
    with pytest.raises(TraceError, match="nosuch"):
        writer.close()
