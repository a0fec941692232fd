"""The list of runs, one of them, and the points of its metrics, on a service with jobs."""

from __future__ import annotations

import csv
import io
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pai_sdk._data.run.events.binary_columns import MEDIA_TYPE, read_columns
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.services.runs import on_demand_manager
from pai_sdk._service.settings import Pace
from tests.service.fakes import ScriptedExecutor
from tests.service.runs.event_files import write_points
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import PATIENCE_S, until

NAN = math.nan
LOSS = [1.0, 0.5, 0.25, 0.125]


@pytest.fixture(scope="module")
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, executor: ScriptedExecutor) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("runs") / "data", executor) as found:
        yield found


def new_run(client: Client, tags: dict[str, list[float]], **hyperparameters: str) -> tuple[str, Path]:
    values = [{"Name": name, "Value": value} for name, value in hyperparameters.items()]
    job_id = client.create(job_body(HyperParameters=values, Labels=[{"Key": "team", "Value": "nlp"}]))
    client.until(job_id, "Running")
    root = client.info.data_dir / "jobs" / job_id
    write_points(folder_of(root), tags)
    wanted = max(map(len, tags.values()))
    until(lambda: all(points(client, job_id, tag)["points"] == wanted for tag in tags), "its points")
    return job_id, root


def folder_of(root: Path) -> Path:
    folder = root / "ml" / "output" / "tensorboard"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def points(client: Client, run_id: str, tag: str, **query: Any) -> dict[str, Any]:
    answer = client.call("GET", f"/runs/{run_id}/scalars", tag=tag, **query)
    return answer.json() if answer.status_code == 200 else {"points": 0}


@pytest.fixture(scope="module")
def runs(client: Client) -> list[str]:
    """Three runs: two with numbers, one of which has NaN, and one hostile one."""
    return [
        new_run(client, {"loss": LOSS, "acc": [0.1, 0.2, 0.3, 0.4]}, lr="0.1", seed="1")[0],
        new_run(client, {"loss": [2.0, NAN, math.inf, 3.0]}, lr="0.2", seed="1")[0],
        new_run(client, {"=cmd()": [7.0, 8.0]}, lr="<script>alert(1)</script>", seed="1")[0],
    ]


# ---- the list ---------------------------------------------------------------------------------------------------


def test_the_list_has_the_last_values_of_each_run(client: Client, runs: list[str]) -> None:
    said = client.get(
        "/runs", sort="created", tags="loss,acc", fields="status,last,min,max,step,count,nan,hparams"
    )
    assert [run["id"] for run in said["runs"]] == runs
    assert said["tags"] == ["loss", "acc"]
    first, second, third = said["runs"]
    assert (first["status"], first["hparams"]) == ("Running", {"lr": "0.1", "seed": "1"})
    assert (first["last"], first["step"], first["count"]) == ([0.125, 0.4], [3, 3], [4, 4])
    assert (first["min"], first["max"], first["nan"]) == ([0.125, 0.1], [1.0, 0.4], [0, 0])
    assert (second["last"], second["min"], second["max"], second["nan"]) == (
        [3.0, None],
        [2.0, None],
        [3.0, None],
        [2, None],
    )
    assert third["last"] == [None, None]
    assert said["total"] == 3


def test_the_list_is_filtered_sorted_and_paged(client: Client, runs: list[str]) -> None:
    assert [run["id"] for run in client.get("/runs", filter="loss<1")["runs"]] == [runs[0]]
    assert [run["id"] for run in client.get("/runs", sort="-metrics.loss", limit=2)["runs"]] == [runs[1], runs[0]]
    seen, cursor = [], ""
    while True:
        page = client.get("/runs", sort="created", limit=2, cursor=cursor)
        seen += [run["id"] for run in page["runs"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert seen == runs


@pytest.mark.parametrize(
    "query", [{"filter": "loss<<"}, {"limit": 0}, {"fields": "all"}, {"tags": "[1"}, {"cursor": "x"}]
)
def test_a_question_that_cannot_be_is_refused(client: Client, query: dict[str, Any]) -> None:
    answer = client.call("GET", "/runs", **query)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")


def test_an_unchanged_list_is_304_and_a_changed_one_is_not(client: Client, runs: list[str]) -> None:
    answer = client.call("GET", "/runs", filter=f"id={runs[0]}")
    etag = answer.headers["etag"]
    assert etag.startswith('"')
    assert client.call("GET", "/runs", filter=f"id={runs[0]}", headers={"If-None-Match": etag}).status_code == 304
    assert client.call("GET", "/runs", filter=f"id={runs[1]}", headers={"If-None-Match": etag}).status_code == 200
    assert client.call("GET", "/runs", headers={"If-None-Match": f'"x", {etag}'}).status_code == 200
    client.call("POST", f"/trainingjobs/{runs[0]}/labels", body={"Labels": [{"Key": "note", "Value": "x"}]})
    until(lambda: client.call("GET", "/runs", headers={"If-None-Match": etag}).status_code == 200)


def test_the_offer_is_announced(client: Client) -> None:
    assert "runs" in client.call("GET", "/trainingjobs").headers["x-pai-offers"].split(", ")
    assert (
        "/api/v1/runs/{run_id}/scalars"
        in client.session.get(f"{client.info.endpoint}/openapi.json").json()["paths"]
    )


# ---- one run ----------------------------------------------------------------------------------------------------


def test_one_run_has_its_tags(client: Client, runs: list[str]) -> None:
    said = client.get(f"/runs/{runs[1]}")
    assert said["labels"] == {"team": "nlp"}
    (tag,) = said["tags"]
    assert (tag["tag"], tag["kind"], tag["count"], tag["nan_count"], tag["inf_count"]) == (
        "loss",
        "scalar",
        4,
        1,
        1,
    )
    assert client.get(f"/runs/{runs[1]}/tags")["tags"] == said["tags"]


def test_what_happened_to_a_run_is_on_its_x_axis(client: Client, runs: list[str]) -> None:
    root = client.info.data_dir / "jobs" / runs[1] / "ml" / "output" / "checkpoints"
    for step, is_complete in ((10, True), (20, False)):
        (root / str(step)).mkdir(parents=True)
        if is_complete:
            (root / str(step) / "_COMPLETE").write_text("{}")
    marks = client.get(f"/runs/{runs[1]}/events")["events"]
    assert ("status", "Running") in [(mark["kind"], mark["text"]) for mark in marks]
    assert [mark["step"] for mark in marks if mark["kind"] == "checkpoint"] == [10]
    (bad,) = [mark for mark in marks if mark["kind"] == "not_finite"]
    assert (bad["step"], bad["text"], bad["time"]) == (1, "loss is nan", 1e9 + 1)


@pytest.mark.parametrize("path", ["/runs/nothing", "/runs/nothing/tags", "/runs/nothing/events", "/runs/a/b/c"])
def test_a_run_that_is_not_there_is_404(client: Client, path: str) -> None:
    answer = client.call("GET", path)
    assert (answer.status_code, answer.json()["Code"]) in ((404, "RUN_NOT_FOUND"), (404, "TRAINING_JOB_NOT_FOUND"))


# ---- points -----------------------------------------------------------------------------------------------------


def test_points_in_json_have_no_nan_but_say_where_they_are(client: Client, runs: list[str]) -> None:
    said = points(client, runs[1], "loss")
    assert said["values"] == [2.0, None, None, 3.0]
    assert said["nonfinite"] == {"nan": [1], "inf": [2]}
    assert (said["steps"], said["walls"][0], said["exact"]) == ([0, 1, 2, 3], 1e9, True)


def test_points_as_columns_are_the_same_numbers(client: Client, runs: list[str]) -> None:
    answer = client.call("GET", f"/runs/{runs[1]}/scalars", tag="loss", headers={"Accept": MEDIA_TYPE})
    assert answer.headers["content-type"] == MEDIA_TYPE
    header, columns = read_columns(answer.content)
    step, wall, value = columns
    assert [column.name for column in columns] == ["step", "wall", "value"]
    assert (header["run"], header["tag"], header["points"]) == (runs[1], "loss", 4)
    np.testing.assert_array_equal(value.values, [2.0, NAN, math.inf, 3.0])
    assert (step.values.tolist(), wall.values.tolist()) == ([0, 1, 2, 3], [1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3])


def test_points_as_csv_run_no_formula(client: Client, runs: list[str]) -> None:
    def rows(**query: Any) -> list[list[str]]:
        answer = client.call(
            "GET", f"/runs/{runs[2]}/scalars", tag="=cmd()", headers={"Accept": "text/csv"}, **query
        )
        assert answer.headers["content-type"].startswith("text/csv")
        return list(csv.reader(io.StringIO(answer.text)))

    assert rows() == [["step", "wall", "value"], ["0", "1000000000.0", "7.0"], ["1", "1000000001.0", "8.0"]]
    assert rows(buckets=2)[1][:2] == ["'=cmd()", "'=cmd()"]


def test_points_are_cut_smoothed_and_put_on_another_axis(client: Client, runs: list[str]) -> None:
    said = points(client, runs[0], "loss", **{"from": 1, "to": 2})
    assert (said["steps"], said["values"]) == ([1, 2], [0.5, 0.25])
    assert points(client, runs[0], "loss", x="relative_time")["xs"] == [0.0, 1.0, 2.0, 3.0]
    # The debiased rule of TensorBoard: the first value stays, the second is (0.9·1 + 0.1·…)/(1 − 0.9²).
    smooth = points(client, runs[0], "loss", smooth=0.5)["values"]
    assert smooth[0] == pytest.approx(1.0)
    assert smooth[1] == pytest.approx((0.5 * 0.5 * 1.0 + 0.5 * 0.5) / (1 - 0.25))


def test_a_bucket_has_the_extremes(client: Client) -> None:
    values = [float(n % 17) for n in range(1000)]
    values[500] = 1e6
    run_id, _ = new_run(client, {"loss": values})
    (found,) = points_in_buckets(client, run_id, buckets=10)["comparisons"]
    (curve,) = found["curves"]
    assert (found["exact"], found["points"], len(found["edges"])) == (False, 1000, len(curve["low"]) + 1)
    assert max(curve["high"]) == 1e6
    assert sum(curve["counts"]) == 1000


def points_in_buckets(client: Client, run_id: str, **query: Any) -> dict[str, Any]:
    return client.get(f"/runs/{run_id}/scalars", tag="loss", **query)


def test_a_cursor_gives_later_points_only_and_says_when_it_cannot(client: Client) -> None:
    run_id, root = new_run(client, {"loss": LOSS})
    before = points(client, run_id, "loss")
    assert (before["first"], before["reset"]) == (0, False)
    write_points(folder_of(root), {"loss": [9.0]}, first_step=4, wall=2e9)
    after = until(
        lambda: found if (found := points(client, run_id, "loss", after=before["cursor"]))["values"] else None
    )
    assert (after["first"], after["steps"], after["values"], after["reset"]) == (4, [4], [9.0], False)
    assert points(client, run_id, "loss", after=after["cursor"])["values"] == []
    strange = points(client, run_id, "loss", after="not one of ours")
    assert (strange["reset"], len(strange["values"])) == (True, 5)


def test_the_answer_of_an_ended_run_can_be_kept(client: Client, executor: ScriptedExecutor) -> None:
    run_id, root = new_run(client, {"loss": LOSS})
    executor.succeed(root)
    client.until(run_id, "Succeed")
    until(lambda: client.get(f"/runs/{run_id}")["status"] == "Succeed")
    version = client.get(f"/runs/{run_id}")["v"]
    for v, expected in ((version, "immutable"), ("", "no-cache"), ("0.1", "no-cache")):
        answer = client.call("GET", f"/runs/{run_id}/scalars", tag="loss", v=v)
        assert answer.status_code == 200, answer.text
        assert expected in answer.headers["cache-control"]


def test_an_ended_run_is_read_from_where_it_was_published(tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    channels = [
        {"Name": name, "OutputUri": f"oss://pai-local/out/{name}/"} for name in ("tensorboard", "checkpoints")
    ]
    with running_service(tmp_path / "data", executor) as client:
        run_id = client.create(job_body(OutputChannels=channels))
        client.until(run_id, "Running")
        root = client.info.data_dir / "jobs" / run_id
        write_points(folder_of(root), {"loss": LOSS})
        checkpoint = root / "ml" / "output" / "checkpoints" / "7"
        checkpoint.mkdir(parents=True)
        (checkpoint / "_COMPLETE").write_text('{"files": {}}')
        until(lambda: points(client, run_id, "loss")["values"] == LOSS)
        assert "uri" not in client.get("/runs")["runs"][0]
        assert "uri" not in client.get(f"/runs/{run_id}")
        folder = str(client.info.data_dir)
        assert folder not in client.call("GET", "/runs").text + client.call("GET", f"/runs/{run_id}").text
        assert client.get("/runs", filter=f"uri~{client.info.data_dir.name}")["total"] == 0
        executor.succeed(root)
        client.until(run_id, "Succeed")
        assert points(client, run_id, "loss")["values"] == LOSS
    shutil.rmtree(root / "ml" / "output", ignore_errors=True)
    with running_service(tmp_path / "data", executor) as client:
        assert points(client, run_id, "loss")["values"] == LOSS
        assert client.get(f"/runs/{run_id}")["uri"] == "oss://pai-local/out/tensorboard"
        marks = client.get(f"/runs/{run_id}/events")["events"]
        assert [mark["step"] for mark in marks if mark["kind"] == "checkpoint"] == [7]


def test_a_metric_that_is_not_there_is_404(client: Client, runs: list[str]) -> None:
    answer = client.call("GET", f"/runs/{runs[0]}/scalars", tag="nothing")
    assert (answer.status_code, answer.json()["Code"]) == (404, "RUN_NOT_FOUND")


# ---- comparisons ------------------------------------------------------------------------------------------------


def test_runs_are_compared_on_one_axis(client: Client, runs: list[str]) -> None:
    answer = client.call("POST", "/compare", body={"runs": runs, "tags": ["loss", "acc"], "buckets": 2})
    loss, acc = answer.json()["comparisons"]
    assert ([curve["name"] for curve in loss["curves"]], loss["exact"]) == (runs[:2], True)
    assert loss["curves"][0]["values"] == LOSS
    assert loss["curves"][1]["nonfinite"] == {"nan": [1], "inf": [2]}
    assert [curve["name"] for curve in acc["curves"]] == runs[:1]


def test_runs_are_compared_over_another_metric(client: Client) -> None:
    first, _ = new_run(client, {"loss": LOSS, "tokens": [100.0, 300.0, NAN, 200.0]})
    second, _ = new_run(client, {"loss": LOSS})
    body: dict[str, Any] = {"runs": [first, second], "tags": ["loss"], "x": "metric:tokens", "last": True}
    (found,) = client.call("POST", "/compare", body=body).json()["comparisons"]
    assert (found["x"], found["points"], found["left_out"]) == ("metric:tokens", 3, 1)
    (curve,) = found["curves"]
    assert (curve["name"], curve["xs"], curve["values"]) == (first, [100.0, 200.0, 300.0], [1.0, 0.125, 0.5])
    body |= {"group_by": ["status"], "from": 150, "buckets": 4}
    answer = client.call("POST", "/compare", body=body, headers={"Accept": MEDIA_TYPE})
    (grouped,) = read_columns(answer.content)[0]["comparisons"]
    assert (grouped["points"], [curve["runs"] for curve in grouped["curves"]]) == (2, [[first]])


def test_runs_of_one_group_have_one_curve_with_a_band(client: Client, runs: list[str]) -> None:
    body = {"runs": runs[:2], "tags": ["loss"], "group_by": ["seed"], "band": "range"}
    (found,) = client.call("POST", "/compare", body=body).json()["comparisons"]
    (curve,) = found["curves"]
    assert (curve["name"], curve["runs"]) == ("seed=1", runs[:2])
    assert max(value for value in curve["high"] if value is not None) == 3.0
    assert [row[1:] for row in curve["nonfinite_buckets"]] == [[1, 0], [0, 1]]


def test_a_comparison_as_columns_has_shared_edges(client: Client) -> None:
    ids = [new_run(client, {"wide": [float(n + 1000 * k) for n in range(100)]})[0] for k in range(3)]
    body = {"filter": "wide>=0", "tags": ["wide"], "buckets": 10}
    answer = client.call("POST", "/compare", body=body, headers={"Accept": MEDIA_TYPE})
    header, columns = read_columns(answer.content)
    (found,) = header["comparisons"]
    named = {column.name: column.values for column in columns}
    assert sorted(found["curves"]) == sorted(ids)
    high = named["high"].reshape(3, len(named["edges"]) - 1)
    assert sorted(np.nanmax(high, axis=1).tolist()) == [99.0, 1099.0, 2099.0]
    assert high.dtype == np.float32


@pytest.mark.parametrize(
    "body",
    [
        {"tags": ["loss"]},
        {"tags": ["loss"], "runs": [], "filter": ""},
        {"tags": [], "filter": ""},
        {"tags": ["loss"], "filter": "", "buckets": 1},
        {"tags": ["loss"], "filter": "", "smooth": 1},
        {"tags": ["loss"], "filter": "", "band": "std"},
        {"tags": ["loss"], "filter": "", "nothing": 1},
        {"tags": ["loss"], "filter": "", "x": "tokens"},
        {"tags": ["loss"], "filter": "", "x": "metric:"},
        {"tags": ["loss"], "runs": ["nothing"]},
    ],
)
def test_a_comparison_that_cannot_be_is_refused(client: Client, body: dict[str, Any]) -> None:
    answer = client.call("POST", "/compare", body=body)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")


def test_hyperparameters_that_differ(client: Client, runs: list[str]) -> None:
    said = client.call("POST", "/hparams/diff", body={"runs": runs, "metric": "loss"}).json()
    (one,) = said["differing"]
    assert (one["name"], one["values"][runs[2]]) == ("lr", "<script>alert(1)</script>")
    assert said["constant"] == {"seed": "1"}
    assert said["metric_values"] == {runs[0]: 0.125, runs[1]: 3.0}


def test_the_last_points_of_a_finished_job_are_in_the_first_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query between two passes had the points of the last pass: the best value was an older one."""
    for name in ("_LOADED_S", "_SETTLED_S"):
        monkeypatch.setattr(on_demand_manager, name, PATIENCE_S)
    executor = ScriptedExecutor()
    with running_service(tmp_path / "data", executor, pace=Pace(refresh_s=3600)) as client:
        first = client.create(job_body())
        client.until(first, "Running")
        root = client.info.data_dir / "jobs" / first
        assert client.get("/runs", fields="status")["total"] == 1  # there is a manager from now on
        for question in ("scalars", "list", "compare"):
            with EventWriter(folder_of(root)) as writer:
                writer.scalars({"loss": 1.0, question: 2.0}, 0)
            executor.succeed(root)
            client.until(root.name)
            if question == "scalars":
                assert points(client, root.name, "scalars")["values"] == [2.0]
            elif question == "list":
                assert [run["id"] for run in client.get("/runs", filter="list=2 status=Succeed")["runs"]] == [
                    root.name
                ]
            else:
                compared = client.call("POST", "/compare", body={"runs": [root.name], "tags": [question]})
                assert [len(one["curves"]) for one in compared.json()["comparisons"]] == [1]
            job_id = client.create(job_body())
            client.until(job_id, "Running")
            root = client.info.data_dir / "jobs" / job_id
