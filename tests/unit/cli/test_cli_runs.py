"""What `pai-sdk runs`, `compare` and `metrics FOLDER` print."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.summary_pb2 import Summary

from pai_sdk._client.job.runs_of_jobs import RunsOfJobs
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.run.report.report_session import ReportSession
from pai_sdk._data.run.watch.manager import RunManager
from pai_sdk._data.run.watch.records import RunRecord
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.cli import run_commands
from pai_sdk.cli.root import run
from pai_sdk.errors import InvalidInputError, NotFoundError, ObjectNotFoundError
from tests.support.event_files import event, simple, write_events
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused
from tests.unit.cli.conftest import Pai
from tests.unit.data.run.events.event_runs import append, write_run

NAME = "a-sweep-with-a-rather-long-name"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        values = [math.exp(-0.1 * number * step) for step in range(50)]
        write_run(Path("runs", NAME, f"lr-{number}"), {"loss": values, "accuracy": [0.5, 0.75]})
    return Path("runs")


def test_a_row_for_each_run(pai: Pai, folder: Path) -> None:
    titles, *rows = pai("runs", folder, "--sort", "metrics.loss").stdout.splitlines()
    assert titles.split() == ["RUN", "STATUS", "AGE", "loss", "accuracy"]
    assert [row.split()[0] for row in rows] == [f"{NAME}/lr-{number}" for number in (2, 1, 0)]
    assert rows[-1].split()[-2:] == ["1", "0.75"]


def test_conditions_tags_and_a_limit(pai: Pai, folder: Path) -> None:
    titles, row = pai("runs", folder, "--filter", "loss<0.001", "--tag", "accuracy").stdout.splitlines()
    assert titles.split() == ["RUN", "STATUS", "AGE", "accuracy"]
    assert row.startswith(f"{NAME}/lr-2 ")
    assert pai("runs", folder, "-n", 1).stdout.splitlines()[-1] == "1 of 3 runs; --limit 3 shows all"
    assert pai("runs", folder, "--filter", "loss>9").stdout == "no run matches 'loss>9', of 3\n"
    assert pai("runs", folder, "--filter", "loss>9", "--json").stdout == ""
    with refused(InvalidInputError, "filter, character 6"):
        pai("runs", folder, "--filter", "loss<")


@pytest.mark.parametrize("columns", ["60", "100"])
def test_ids_are_whole_in_a_narrow_window(
    pai: Pai, folder: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", pai("runs", folder).stdout)
    for number in range(3):
        assert f"{NAME}/lr-{number}" in shown
    assert "loss" in shown.splitlines()[0]


def test_runs_for_scripts(pai: Pai, folder: Path) -> None:
    write_run(folder / "broken", {"loss": [1.0, math.nan]})
    found = [json.loads(line) for line in pai("runs", folder, "--json", "--sort", "id").stdout.splitlines()]
    assert [run["Id"] for run in found] == [*(f"{NAME}/lr-{number}" for number in range(3)), "broken"]
    assert found[-1]["Metrics"]["loss"] == {
        "Last": "nan", "Step": 1, "Min": 1.0, "Max": 1.0, "Count": 2, "NanCount": 1, "InfCount": 0,
    }  # fmt: skip
    assert found[0]["Metrics"]["accuracy"]["Last"] == 0.75


def strictly(text: str) -> dict[str, Any]:
    """JSON without Python's NaN and Infinity."""

    def refused(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refused)  # type: ignore[no-any-return]


def test_json_has_no_numbers_that_are_not_finite(pai: Pai, folder: Path) -> None:
    write_run(folder / "ends", {"loss": [-math.inf, math.inf], "nan": [math.nan]})
    found = strictly(pai("runs", folder / "ends", "--json").stdout)
    assert [found["Metrics"][tag]["Last"] for tag in ("loss", "nan")] == ["inf", "nan"]
    points = pai("metrics", folder / "ends", "--points", "--name", "loss", "--json").stdout.splitlines()
    assert [strictly(point)["Value"] for point in points] == ["-inf", "inf"]
    assert (
        strictly(pai("compare", folder / "ends", "--tag", "nan", "--json").stdout)["Metrics"]["nan"]["NanCount"]
        == 1
    )


@pytest.mark.parametrize(
    "command", [("runs",), ("compare", "--tag", "loss"), ("metrics",), ("runs", "--json")], ids=" ".join
)
@pytest.mark.parametrize("name", ["/no/such/folder", "file:///no/such/folder", "memory://no-such-folder"])
def test_a_folder_that_is_not_there_is_an_error(
    pai: Pai, folder: Path, command: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    with refused(ObjectNotFoundError, code="NoSuchKey"):
        pai(*command, name)
    monkeypatch.setattr("sys.argv", ["pai-sdk", *command, name])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 102
    assert "no such file or folder" in capfd.readouterr().err


def test_each_folder_must_be_there(pai: Pai, folder: Path) -> None:
    with refused(ObjectNotFoundError, code="NoSuchKey"):
        pai("runs", folder, "typo/")
    folder.joinpath("empty").mkdir()
    for name in (folder / "empty", (folder / "empty").absolute().as_uri()):
        for command in ("runs", "compare"):
            shown = pai(command, name).stdout
            assert shown.startswith(f"no runs in {name}: there are no event files")
        assert pai("runs", name, "--json").stdout == ""


def test_a_folder_that_is_watched_may_come_later(pai: Pai, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_: float) -> None:
        if Path("later").exists():
            raise KeyboardInterrupt
        write_run(Path("later", "first"), {"loss": [7.5]})

    monkeypatch.setattr("time.sleep", look)
    shown = pai("runs", "./later", "--watch").stdout
    assert shown.startswith("no runs")


def test_names_cannot_colour_the_terminal(pai: Pai, folder: Path) -> None:
    write_run(folder / "evil", {"\x1b[31mred": [1.0]})
    for command in ("runs", "compare", "metrics"):
        assert "\x1b" not in pai(command, folder / "evil").stdout


def test_watching_goes_on_until_ctrl_c(pai: Pai, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            write_run(folder / "late", {"loss": [7.5]})
        elif looks == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", look)
    result = pai("runs", folder, "--watch", "--tag", "loss")
    assert result.exit_code == 0
    before, after = result.stdout.split("RUN")[1:3]
    assert "late" not in before
    assert "7.5" in after


# ---- the runs of jobs


class WithOutput(FakeBackend):
    """Jobs that report into a folder of this machine."""

    def __init__(self, folder: Path, name: str = "first") -> None:
        super().__init__()
        self.folder = folder
        self.extra = {
            "TrainingJobName": name,
            "OutputChannels": [{"Name": "tensorboard", "OutputUri": folder.absolute().as_uri()}],
            "HyperParameters": [{"Name": "lr", "Value": "0.1"}],
            "GmtCreateTime": "2026-11-22T10:00:00Z",
            "Duration": 60,
        }

    def store(self, uri: str) -> Store:
        return LocalStore(self.folder)


@pytest.fixture
def jobs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, TrainingJob]:
    found = {
        f"train{number}": TrainingJob(f"train{number}", WithOutput(folder / NAME / f"lr-{number}", name))
        for number, name in ((0, "small-lr"), (2, "large-lr"))
    }

    def get(job_id: str) -> TrainingJob:
        if job_id not in found:
            raise NotFoundError(f"no job {job_id}", code="NotFound", status_code=404, request_id="r")
        return found[job_id]

    monkeypatch.setattr(TrainingJob, "get", get)
    monkeypatch.setattr(TrainingJob, "list", lambda **_: iter(found.values()))
    return found


def test_without_a_folder_they_are_those_of_the_jobs(pai: Pai, jobs: dict[str, TrainingJob]) -> None:
    for command in ("runs", "--sort", "id"), ("compare",):
        titles, *rows, same = pai(*command, "--tag", "loss").stdout.splitlines()
        assert titles.split()[:3] == ["RUN", "JOB", "STATUS"]
        assert [row.split()[:3] for row in rows] == [
            ["small-lr", "train0", "Running"],
            ["large-lr", "train2", "Running"],
        ]
        assert same == "the same in all: lr=0.1"


def test_jobs_with_one_name_are_told_apart(pai: Pai, jobs: dict[str, TrainingJob]) -> None:
    for job in jobs.values():
        job.backend.extra["TrainingJobName"] = "same"  # type: ignore[attr-defined]
    _, *rows, _ = pai("runs", "--sort", "id", "--tag", "loss").stdout.splitlines()
    assert [row.split("  ")[0] for row in rows] == ["same (ain0)", "same (ain2)"]


def test_a_prefix_of_several_jobs_lists_all_of_them(pai: Pai, jobs: dict[str, TrainingJob]) -> None:
    assert pai("runs", "train", "--sort", "id", "-q").stdout == "train0\ntrain2\n"
    assert names_of(pai("compare", "train", "--tag", "loss", "--json").stdout) == ["train0", "train2"]


def test_ids_for_scripts_are_in_order_and_complete(
    pai: Pai, jobs: dict[str, TrainingJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_commands, "_DEFAULT_LIMIT", 1)
    assert pai("runs", "--sort", "-id", "-q").stdout == "train2\ntrain0\n"
    assert pai("runs", "--sort", "-id", "-q", "-n", 1).stdout == "train2\n"
    assert pai("runs", "--filter", "loss>9", "-q").stdout == ""


def test_a_hyperparameter_needs_no_prefix(pai: Pai, jobs: dict[str, TrainingJob]) -> None:
    assert pai("runs", "--filter", "lr=0.1", "--sort", "-lr", "-q").stdout.split() == ["train0", "train2"]
    assert pai("runs", "--filter", "lr>0.1", "-q").stdout == ""


def test_older_jobs_that_were_not_read_are_announced(
    pai: Pai, jobs: dict[str, TrainingJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "newest" not in pai("runs").stderr
    monkeypatch.setattr(run_commands, "_MAX_JOBS", 1)
    assert "only the newest 1 jobs" in pai("runs").stderr
    filters: dict[str, object] = {}
    monkeypatch.setattr(TrainingJob, "list", lambda **given: filters.update(given) or iter(()))
    assert "no job matches" in pai("runs", "--label", "sweep=lr").stdout
    assert filters["labels"] == {"sweep": "lr"}  # the service selects, not the newest 200


def test_a_single_run_shows_all_its_hyperparameters(pai: Pai, jobs: dict[str, TrainingJob]) -> None:
    titles, row = pai("runs", "train0", "--tag", "loss").stdout.splitlines()
    assert titles.split() == ["RUN", "JOB", "STATUS", "AGE", "lr", "loss"]
    assert row.split()[-2:] == ["0.1", "1"]


def test_a_record_of_a_job_is_asked_for_again_until_it_has_ended(folder: Path) -> None:
    now = 0.0
    backend = WithOutput(folder)
    asked: list[str] = []

    def listed() -> Iterator[TrainingJob]:
        asked.append(backend.status)
        yield TrainingJob("train0", backend)

    runs = RunsOfJobs(listed, clock=lambda: now)
    assert [record.status for record in runs()] == ["Running"]
    backend.status = "Succeed"
    assert [record.status for record in runs()] == ["Running"], "a few seconds old"
    now = 10.0
    (record,) = runs()
    assert (record.status, record.hparams) == ("Succeed", {"lr": "0.1"})
    assert record.ended_at == pytest.approx(record.created_at + 60)  # type: ignore[operator]
    assert asked == ["Running", "Succeed"]
    with RunManager(records=runs, opener=runs.open, refresh_s=0) as manager:
        manager.refresh()
        assert manager.state.error == ""


def test_an_unknown_job_is_an_error(pai: Pai, jobs: dict[str, TrainingJob]) -> None:
    with refused(NotFoundError, code="TrainingJobNotFound"):
        pai("runs", "train9")
    with refused(NotFoundError, code="TrainingJobNotFound"):
        pai("runs", "rnus")


# ---- compare


def test_runs_and_jobs_are_compared(pai: Pai, folder: Path, jobs: dict[str, TrainingJob]) -> None:
    titles, *rows = pai("compare", folder / NAME / "lr-1", "train0", "--tag", "loss").stdout.splitlines()
    assert titles.split() == ["RUN", "JOB", "STATUS", "lr", "LAST", "MIN", "MAX", "STEP", "loss"], (
        "one has a learning rate"
    )
    by_name = {row.split()[0]: row.split() for row in rows}
    assert by_name["small-lr"][4:8] == ["1", "1", "1", "49"]
    assert set(by_name["small-lr"][8]) == {"█"}, "on one scale"
    assert by_name["lr-1"][7][0] in "▅▆▇█"
    assert by_name["lr-1"][7][-1] == "▁"


def test_a_course_begins_with_the_first_value(pai: Pai, folder: Path) -> None:
    write_run(folder / "falling", {"x": [1 / (step + 1) for step in range(40)]})
    row = pai("compare", folder / "falling", "--tag", "x").stdout.splitlines()[1]
    course = row.split()[-1]
    assert (course[0], course[-1], len(course)) == ("█", "▁", 24)


def test_a_comparison_is_saved(pai: Pai, folder: Path) -> None:
    shown = pai("compare", folder, "--tag", "loss", "--save", "loss.svg").stdout
    assert shown.endswith("saved to loss.svg\n")
    assert "<svg" in Path("loss.svg").read_text(encoding="utf-8")


def names_of(output: str) -> list[str]:
    return [json.loads(line)["Id"] for line in output.splitlines()]


def test_runs_to_compare_are_selected_and_sorted(pai: Pai, folder: Path) -> None:
    compare = ("compare", folder, "--tag", "loss", "--json")
    ids = [f"{NAME}/lr-{number}" for number in range(3)]
    assert names_of(pai(*compare, "--sort", "loss").stdout) == ids[::-1]
    assert names_of(pai(*compare, "--sort", "-id", "--filter", "loss<0.5").stdout) == [ids[2], ids[1]]
    shown = pai(*compare[:-1], "--sort", "loss").stdout.splitlines()
    assert [row.split()[0] for row in shown[1:]] == ids[::-1]
    assert pai(*compare[:-1], "--filter", "loss>9").stdout == "no run matches 'loss>9', of 3\n"
    with refused(InvalidInputError, "sort"):
        pai(*compare, "--sort", "los")


def test_runs_are_selected_by_the_labels_of_their_jobs(pai: Pai, jobs: dict[str, TrainingJob]) -> None:
    backend = jobs["train2"].backend
    assert isinstance(backend, WithOutput)
    backend.extra["Labels"] = [{"Key": "sweep", "Value": "lr"}]
    for command in ("runs", "compare"):
        output = pai(command, "--tag", "loss", "--label", "sweep=lr", "--json").stdout
        assert names_of(output) == ["train2"]
        assert pai(command, "--label", "sweep=x").stdout == "no run matches 'sweep=x', of 2\n"


def test_a_run_of_a_folder_is_named_by_its_id_its_name_or_the_newest(folder: Path) -> None:
    write_run(folder / "new", {"loss": [0.5]}, hparams={"lr": 0.1})
    for name, run_id in ((f"{NAME}/lr-1", f"{NAME}/lr-1"), ("new", "new"), ("-", "new")):
        assert run_commands.run_id_in(str(folder), name) == run_id
    with refused(NotFoundError, code="RunNotFound"):
        run_commands.run_id_in(str(folder), "neww")


def test_a_metric_that_is_missing_names_the_others(pai: Pai, folder: Path) -> None:
    with refused(InvalidInputError, "--tag"):
        pai("compare", folder, "--tag", "los")
    with refused(InvalidInputError, "--tag"):
        pai("compare", folder, "--tag", "x")


def test_a_metric_that_all_runs_have_needs_no_tag(pai: Pai, folder: Path) -> None:
    with refused(InvalidInputError, "--tag"):
        pai("compare", folder)
    write_run(folder / NAME / "only-loss", {"loss": [0.5]})
    assert pai("compare", folder).stdout.splitlines()[0].split()[-1] == "loss"
    assert pai("compare", folder / NAME / "only-loss").stdout.splitlines()[0].split()[-1] == "loss"
    write_run(folder / "new", {}, hparams={"lr": 0.1})
    with refused(InvalidInputError, "RUN"):
        pai("compare", folder / "new")


def test_a_folder_that_is_given_twice_has_one_row(pai: Pai, folder: Path) -> None:
    place = folder / NAME
    (folder / "link").symlink_to((place / "lr-2").absolute())
    write_run(place / ".hidden", {"loss": [9.0]})
    for more in (), (place / "lr-1", f"{place}/lr-1/", folder, (place / "lr-0").absolute()):
        _, *rows = pai("runs", place / "lr-0", place / "lr-0", f"{place}/lr-0/", *more).stdout.splitlines()
        assert len(rows) == (3 if more else 1)
    _, *rows = pai("compare", folder, place / ".hidden", folder / "link", "-t", "loss").stdout.splitlines()
    assert sorted(row.split()[0] for row in rows) == [
        ".hidden", *(f"{NAME}/lr-{number}" for number in range(3)), "link",
    ]  # fmt: skip


def test_runs_without_the_metric_are_named(pai: Pai, folder: Path) -> None:
    write_run(folder / "other", {"accuracy": [0.5]})
    assert pai("compare", folder, "--tag", "loss").stdout.splitlines()[-1] == "without loss: other"


def test_rows_have_the_names_of_their_folders(pai: Pai, folder: Path) -> None:
    """As a shell writes `runs/*`."""
    each = sorted((folder / NAME).iterdir())
    for command in ("compare", "runs"):
        _, *rows = pai(command, *each, "--tag", "loss").stdout.splitlines()
        assert sorted(row.split()[0] for row in rows) == ["lr-0", "lr-1", "lr-2"]
    write_run(folder / "my runs" / "lr-1" / "tensorboard", {"loss": [2.0, 3.0]})
    shown = pai("compare", each[1], folder / "my runs" / "lr-1", "-t", "loss", "--save", "loss.svg").stdout
    names = [f"{NAME}/lr-1", "my runs/lr-1"]
    assert [row.split("  ")[0] for row in shown.splitlines()[1:3]] == names
    assert all(name in Path("loss.svg").read_text(encoding="utf-8") for name in names)
    found = [json.loads(line)["Name"] for line in pai("runs", *each, "--json").stdout.splitlines()]
    assert sorted(found) == ["lr-0", "lr-1", "lr-2"]


def test_what_is_left_out_is_named(pai: Pai, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {name: [1.0, 2.0] for name in ("loss", "acc", "lr", "time", "norm")}
    hparams = {f"a-hyperparameter-{number}": f"the-value-{number}" for number in range(8)}
    write_run(folder / "many" / "a", values, hparams=hparams | {"seed": 7})
    write_run(folder / "many" / "b", values | {"loss": [1.0]}, hparams={"seed": 7, "lr": 0.1})
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    titles, _, _, metrics, more, same = plain(pai("runs", folder / "many").stdout).splitlines()
    assert titles.split() == ["RUN", "STATUS", "AGE", "lr", "a-hyperparameter-0", "a-hyperparameter-1", "acc"]
    assert metrics == "more metrics: lr, time, norm, loss (--tag NAME shows one)"
    names = ", ".join(f"a-hyperparameter-{number}" for number in range(2, 8))
    assert more == f"more hyperparameters: {names} (--json shows all)"
    assert same == "the same in all: seed=7"
    monkeypatch.setenv("COLUMNS", "40")
    assert plain(pai("runs", folder / "many").stdout).splitlines()[0].split() == [
        "RUN",
        "STATUS",
        "AGE",
        "lr",
        "acc",
    ]
    asked = plain(pai("runs", folder / "many", "-tloss", "-tacc", "-tnorm", "-ttime").stdout).splitlines()
    assert asked[0].split() == ["RUN", "STATUS", "AGE", "lr", "loss"]
    assert asked[3] == "not shown, because the terminal is too narrow: acc, norm, time (--json shows all)"


def plain(text: str) -> str:
    """The text without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_metrics_that_are_asked_for_come_first(pai: Pai, folder: Path) -> None:
    write_run(folder / "other", {"loss": [0.5], "rare": [0.25]})
    titles = pai("runs", folder, "--sort", "rare", "--filter", "accuracy.max>0.1").stdout.splitlines()[0]
    assert titles.split() == ["RUN", "STATUS", "AGE", "accuracy", "loss"]
    titles, *_ = pai("runs", folder, "--sort", "-rare").stdout.splitlines()
    assert titles.split() == ["RUN", "STATUS", "AGE", "rare", "loss", "accuracy"]


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (("--sort", "los"), "sort"),
        (
            ("--sort", "-foo"),
            "sort",
        ),
        (("--sort", "mape"), "sort"),
        (("--sort", "upated"), "sort"),
        (("--sort", "hparams.rl"), "sort"),
        (("-t", "los"), "tag"),
        (("-t", "lr", "-t", "loss"), "tag"),
        (("--filter", "los<3"), "filter"),
        (("--filter", "hparams.l=3"), "filter"),
    ],
    ids=str,
)
def test_unknown_names_are_errors(pai: Pai, folder: Path, options: tuple[str, ...], where: str) -> None:
    write_run(folder / "one", {"loss": [0.5], "eval/mape": [0.5]}, hparams={"lr": 0.1})
    for how in (), ("--json",):
        with refused(InvalidInputError, where):
            pai("runs", folder, *options, *how)


@pytest.mark.parametrize(
    "options",
    [
        ("--sort", "loss"),
        ("--sort", "-metrics.loss.min"),
        ("--sort", "name"),
        ("--sort", "hparams.lr"),
        ("--filter", "hparams.old!=1 labels.archived!=yes one"),
        ("--filter", "nan=0 damaged=0 created>-2d"),
    ],
    ids=str,
)
def test_known_names_are_no_errors(pai: Pai, folder: Path, options: tuple[str, ...]) -> None:
    write_run(folder / "one", {"loss": [0.5]}, hparams={"lr": 0.1})
    assert pai("runs", folder, *options).stdout.splitlines()[0].startswith("RUN ")


def test_nothing_is_unknown_before_the_first_metric(pai: Pai, folder: Path) -> None:
    write_run(folder / "new", {}, hparams={"lr": 0.1})
    assert pai("runs", folder / "new", "--sort", "loss", "-t", "loss").stdout.startswith("RUN")
    with refused(InvalidInputError, "sort"):
        pai("runs", folder / "new", "--sort", "crated")


def test_metrics_of_further_instances_are_not_in_the_way(pai: Pai, folder: Path) -> None:
    for rank, instance in enumerate(("master-0", "worker-0", "worker-1")):
        place = folder / "many" / "tensorboard" / (f"rank-{rank}" if rank else "")
        with EventWriter(place, source=f"train129f212o89d-{instance}") as writer:
            writer.scalars({"loss": 0.5, "acc": 0.5}, 1)
    titles, _, more = pai("runs", folder / "many").stdout.splitlines()
    assert titles.split() == ["RUN", "STATUS", "AGE", "loss", "acc"]
    assert more == "more metrics: 4 of other instances, such as loss (worker-0) (--tag NAME shows one)"
    titles, _ = pai("runs", folder / "many", "-t", "loss (worker-1)").stdout.splitlines()
    assert titles.endswith("  loss (worker-1)")


def test_two_hundred_runs(pai: Pai, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(200):
        write_run(Path("runs", f"run-{number:03}"), {"loss": [1 / (number + 1)]})
    _, *rows, more = pai("runs", "runs", "--sort", "loss").stdout.splitlines()
    assert [row.split()[0] for row in rows] == [f"run-{number:03}" for number in range(199, 179, -1)]
    assert more == "20 of 200 runs; --limit 200 shows all"
    assert len(pai("compare", *sorted(Path("runs").iterdir())).stdout.splitlines()) == 201


def test_an_image_is_no_metric(pai: Pai, folder: Path) -> None:
    image = Summary.Value(tag="sample", image=Summary.Image(height=1, width=1, encoded_image_string=b"\x89PNG"))
    write_events(folder / "pictures" / "events.out.tfevents.1", event(0, simple("loss", 0.5), image))
    for tag in ("los", "sample"):
        with refused(InvalidInputError, "--tag"):
            pai("compare", folder / "pictures", "--tag", tag)


# ---- metrics of a folder


def test_the_metrics_of_a_folder(pai: Pai, folder: Path) -> None:
    titles, loss, _ = pai("metrics", folder / NAME / "lr-0").stdout.splitlines()
    assert titles.split() == ["METRIC", "LAST", "MIN", "MAX", "STEP", "VALUES"]
    assert loss.split()[:6] == ["loss", "1", "1", "1", "49", "50"]
    points = pai("metrics", folder / NAME / "lr-0", "--points", "--name", "accuracy").stdout.splitlines()
    assert [point.split("  ")[1:] for point in points] == [
        ["step 0", "accuracy", "0.5"],
        ["step 1", "accuracy", "0.75"],
    ]


def test_a_folder_is_followed(pai: Pai, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = next((folder / NAME / "lr-1").iterdir())
    steps = iter([lambda: append(file, {"accuracy": [0.9]}, first=2)])

    def look(_: float) -> None:
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr("time.sleep", look)
    result = pai("metrics", folder / NAME / "lr-1", "--follow", "--name", "accuracy")
    assert result.exit_code == 101
    assert [line.split("  ")[1:] for line in result.stdout.splitlines()] == [
        ["step 0", "accuracy", "0.5"],
        ["step 1", "accuracy", "0.75"],
        ["step 2", "accuracy", "0.9"],
    ]


def test_following_ends_with_the_run(pai: Pai, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ReportSession(folder / "live")
    session.report({"loss": 0.5}, 1)
    session.flush()

    def look(_: float) -> None:
        session.report({"loss": 0.25}, 2)
        session.close()

    monkeypatch.setattr("time.sleep", look)
    result = pai("metrics", folder / "live", "--follow")
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["0.5", "0.25"]
    assert result.exit_code == 0


def test_the_last_value_of_a_run_that_diverged(pai: Pai, folder: Path) -> None:
    write_run(folder / "wild", {"loss": [1.0, math.nan], "nothing": [math.nan]})
    _, *rows = pai("metrics", folder / "wild").stdout.splitlines()
    assert [row.split()[:6] for row in rows] == [
        ["loss", "nan", "1", "1", "0", "2"],
        ["nothing", "nan", "-", "-", "1"],
    ]
    with refused(InvalidInputError, "--name"):
        pai("metrics", folder / "wild", "--name", "los")


def test_a_folder_of_several_runs_is_not_one(pai: Pai, folder: Path) -> None:
    with refused(InvalidInputError, "RUN"):
        pai("metrics", folder)
    folder.joinpath("empty").mkdir()
    with refused(InvalidInputError, "RUN"):
        pai("metrics", folder / "empty")


def test_what_is_a_folder(folder: Path) -> None:
    assert [run_commands.is_folder(name) for name in ("runs", "a/b", "oss://b/runs", "train0123")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_the_record_of_a_run() -> None:
    record = JobRecord.model_validate(
        {"TrainingJobId": "train1", "Status": "Queuing", "Labels": [{"Key": "team", "Value": "nlp"}]}
    )
    from pai_sdk._client.job.runs_of_jobs import run_record

    assert run_record(record) == RunRecord("train1", "Queuing", labels={"team": "nlp"})


def test_links_that_are_not_followed_are_named(pai: Pai, tmp_path: Path) -> None:
    write_run(tmp_path / "all" / "a", {"loss": [1.0]})
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "first").symlink_to(tmp_path / "all" / "a")
    for command in ("runs", "compare"):
        assert "first" in pai(command, tmp_path / "some").stderr
    write_run(tmp_path / "some" / "b", {"loss": [1.0]})
    found = pai("runs", tmp_path / "some", "--json")
    assert "first" in found.stderr
    assert json.loads(found.stdout)["Id"] == "b"
    assert pai("runs", tmp_path / "all").stderr == ""


def test_points_that_a_later_file_replaces_are_counted(pai: Pai, tmp_path: Path) -> None:
    for number, steps in enumerate((range(60), range(50, 100))):
        write_events(
            tmp_path / "a" / f"events.out.tfevents.{1790000000 + 600 * number}.spot-{number}.1.0",
            *(event(step, simple("loss", 1 / (step + 1))) for step in steps),
        )
    write_run(tmp_path / "b", {"loss": [1.0]})
    for command in ("runs", "compare"):
        assert "replaced by later event files: 10 of a" in pai(command, tmp_path).stdout
    lines = [json.loads(line) for line in pai("runs", tmp_path, "--json").stdout.splitlines()]
    counts = {one["Id"]: one["Metrics"]["loss"].get("ReplacedCount") for one in lines}
    assert counts == {"a": 10, "b": None}
