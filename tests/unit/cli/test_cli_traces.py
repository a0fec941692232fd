"""What `pai-sdk trace` prints, and the trace of a job."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._data.trace.parquet import ParquetSink
from pai_sdk._data.trace.trace_writer import TraceWriter
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.cli.root import app
from pai_sdk.errors import InvalidInputError, TraceError
from tests.support.messages import refused
from tests.support.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> str:
    with TraceWriter({"n": "bigint", "word": "string"}, ParquetSink(tmp_path / "t"), run_id="r1") as writer:
        writer.write(n=range(5), word=["a", None, "\x1b[31mred", "d", "e"])
    return str(tmp_path / "t")


def run(*arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["trace", *arguments])
    assert found.exit_code == code, found.output
    return found.output


def test_the_first_rows(folder: str) -> None:
    lines = run("head", folder, "--rows", "3").splitlines()
    assert [line.split()[0] for line in lines] == ["n", "0", "1", "2"]
    assert "\x1b[31m" not in "".join(lines)


def test_a_table_in_a_pipe_has_every_column_and_complete_values(tmp_path: Path) -> None:
    names = [f"a_column_with_a_long_name_{number}" for number in range(9)]
    with TraceWriter(dict.fromkeys(names, "double"), ParquetSink(tmp_path), run_id="r1") as writer:
        writer.write(**{name: [1 / 7] for name in names})
    titles, values = run("head", str(tmp_path)).splitlines()
    assert titles.split() == [*names, "run"]
    assert values.split() == [str(1 / 7)] * 9 + ["r1"]


def test_a_table_in_a_narrow_terminal_shortens_the_widest_column(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    text = run("query", folder, "SELECT n, word, repeat('x', 50) AS long, run FROM trace LIMIT 1")
    assert re.sub(r"\x1b\[[\d;]*m", "", text).splitlines() == ["n  word  long    run", "0  a     xxxxx…  r1"]


def test_rows_as_json_and_csv(folder: str) -> None:
    rows = [json.loads(line) for line in run("head", folder, "-n", "2", "--format", "json").splitlines()]
    assert rows == [{"n": 0, "word": "a", "run": "r1"}, {"n": 1, "word": None, "run": "r1"}]
    assert run("head", folder, "-n", "1", "-f", "csv") == "n,word,run\n0,a,r1\n"


def test_json_is_strict(tmp_path: Path) -> None:
    types = {"x": "double", "v": "array<double>", "m": "map<string,double>", "s": "struct<a:float>"}
    with TraceWriter(types, ParquetSink(tmp_path), run_id="r1") as writer:
        writer.write(x=[math.nan], v=[[math.inf, 1.0, None]], m=[[("k", -math.inf)]], s=[{"a": math.nan}])
    for arguments in (("head", str(tmp_path)), ("query", str(tmp_path), "SELECT x, v, s FROM trace")):
        shown = run(*arguments, "--format", "json")
        assert not re.search(r"NaN|Infinity", shown)
        row = json.loads(shown)
        assert (row["x"], row["v"], row["s"]) == ("nan", ["inf", 1.0, None], {"a": "nan"})
    assert json.loads(run("head", str(tmp_path), "-f", "json"))["m"] == [["k", "-inf"]]


def test_columns_with_one_name_are_all_shown(folder: str) -> None:
    query = "SELECT n, n + 1 AS n, n + 2 AS n FROM trace ORDER BY 1"
    assert run("query", folder, query, "-n", "1", "-f", "csv").splitlines()[1] == "0,1,2"
    assert list(json.loads(run("query", folder, query, "-n", "1", "-f", "json")).values()) == [0, 1, 2]


def test_rows_before_their_commit(tmp_path: Path) -> None:
    with TraceWriter({"n": "bigint"}, ParquetSink(tmp_path), run_id="r1", block_bytes=1) as writer:
        writer.write(n=7)
        until(lambda: writer.stats().blocks_stored == 1, "the block")
        with refused(TraceError):
            CliRunner().invoke(app, ["trace", "head", str(tmp_path)], catch_exceptions=False)
        assert run("head", str(tmp_path), "--uncommitted", "-f", "csv") == "n,run\n7,r1\n"
        assert run("query", str(tmp_path), "SELECT n FROM trace", "--uncommitted", "-f", "csv") == "n\n7\n"


def test_a_query(folder: str) -> None:
    assert run("query", folder, "SELECT sum(n) AS total FROM trace", "--format", "csv") == "total\n10\n"
    assert run("query", folder, "SELECT n FROM trace ORDER BY n DESC", "-n", "1", "-f", "csv") == "n\n4\n"


def test_a_wrong_query_or_folder(folder: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="the query failed"):
        CliRunner().invoke(app, ["trace", "query", folder, "SELECT m FROM trace"], catch_exceptions=False)
    with refused(TraceError):
        CliRunner().invoke(app, ["trace", "head", str(tmp_path / "none/")], catch_exceptions=False)


class Outputs(TrainingJob):
    """A job with outputs in local folders."""

    def __init__(self, **outputs: str) -> None:
        channels = [{"Name": name, "OutputUri": uri} for name, uri in outputs.items()]
        record = JobRecord.model_validate({"TrainingJobId": "train1", "OutputChannels": channels})
        super().__init__("train1", self, record=record)  # type: ignore[arg-type]

    def store(self, uri: str) -> object:
        from pai_sdk._data.storage.store import open_store

        return open_store(uri)


def test_a_job_has_its_trace_in_one_of_two_outputs(tmp_path: Path) -> None:
    for place, rows in (("trace", 2), ("model/trace", 3)):
        with TraceWriter({"n": "bigint"}, ParquetSink(tmp_path / place), run_id="r1") as writer:
            writer.write(n=list(range(rows)))
    model, own = (tmp_path / "model").as_uri() + "/", (tmp_path / "trace").as_uri() + "/"
    assert Outputs(model=model, trace=own).trace().to_arrow().num_rows == 2
    assert Outputs(model=model).trace().to_arrow().num_rows == 3
    with refused(InvalidInputError, "channel"):
        Outputs().trace()
