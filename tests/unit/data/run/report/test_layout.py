"""RunLayout: the paths of a run, and the ids that runs may have."""

from __future__ import annotations

import pickle

import pytest

from pai_sdk._data.run.report.layout import CheckpointPath, RunLayout, check_run_id, is_run_id, join
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


@pytest.mark.parametrize(
    ("runs", "folder"),
    [
        ("oss://models/runs", "oss://models/runs/r1"),
        ("oss://models/runs/", "oss://models/runs/r1"),
        ("hdfs://host:9000/x/runs", "hdfs://host:9000/x/runs/r1"),
        ("memory://", "memory://r1"),
        ("file:///", "file:///r1"),
        ("/", "/r1"),
        ("dbfs:/", "dbfs:/r1"),
        ("/data/my runs/", "/data/my runs/r1"),
        ("runs", "runs/r1"),
        ("", "r1"),
    ],
)
def test_a_run_is_a_folder_of_its_id(runs: str, folder: str) -> None:
    run = RunLayout.of(runs, "r1")
    assert (run.folder, run.run_id) == (folder, "r1")
    assert run == RunLayout(f"{folder}/")
    assert run.logs == f"{folder}/logs"
    assert run.tensorboard == f"{folder}/tensorboard"
    assert run.model == f"{folder}/model"
    assert run.trace == f"{folder}/trace"
    assert run.checkpoints == f"{folder}/checkpoints"
    assert run.checkpoint(12) == f"{folder}/checkpoints/12"
    assert run.checkpoint_marker(12) == f"{folder}/checkpoints/12/_COMPLETE"


def test_output_channels_are_folders_of_the_run() -> None:
    run = RunLayout("/ml/output")
    assert [run.channel(name) for name in ("model", "checkpoints", "tensorboard")] == [
        run.model,
        run.checkpoints,
        run.tensorboard,
    ]
    assert run.channel("train data") == "/ml/output/train data"


@pytest.mark.parametrize("run_id", ["train129f212o89d", "local-08655612a521", "keras_1600000000", "2026.11", "a"])
def test_ids_of_jobs_are_ids_of_runs(run_id: str) -> None:
    check_run_id(run_id)
    assert is_run_id(run_id)


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        ".",
        "..",
        "../../x",
        "/etc",
        "a/b",
        "a\\b",
        ".hidden",
        "-f",
        "_x",
        "a b",
        "a\n",
        "ä",
        "a\x00",
        "r" * 256,
        None,
        7,
        b"r1",
    ],
)
def test_what_leaves_the_folder_of_runs_is_no_id(run_id: object) -> None:
    """STO-B5: an absolute id replaced the whole path, and `..` left it."""
    assert not is_run_id(run_id)
    with refused(InvalidInputError, "run_id"):
        RunLayout.of("/data/runs", run_id)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\\b", 7])
def test_a_channel_is_one_folder(name: object) -> None:
    with refused(InvalidInputError, "channel"):
        RunLayout("/ml/output").channel(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [-1, 1.5, "3", True, None])
def test_a_step_is_a_whole_number(step: object) -> None:
    with refused(InvalidInputError, "step"):
        RunLayout("r").checkpoint(step)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("0", 0),
        ("7", 7),
        ("1000000", 1_000_000),
        ("07", None),
        ("300.tmp", None),
        ("+7", None),
        ("٧", None),
        ("7\n", None),
        ("", None),
    ],
)
def test_the_step_of_a_folder(name: str, step: int | None) -> None:
    assert RunLayout.step_of(name) == step


def test_layouts_are_plain_values() -> None:
    run = RunLayout.of("oss://models/runs", "r1")
    assert pickle.loads(pickle.dumps(run)) == run
    assert len({run, RunLayout("oss://models/runs/r1")}) == 1


def test_join_keeps_what_belongs_to_the_name() -> None:
    assert join("s3://bucket//", "x") == "s3://bucket/x"
    assert join("memory:///", "x") == "memory:///x"


def test_join_with_a_root_and_without_a_folder() -> None:
    joined = [join(folder, "a") for folder in ("hdfs://host:9000/runs", "memory://", "/", "")]
    assert joined == ["hdfs://host:9000/runs/a", "memory://a", "/a", "a"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rank-2/300/weights/a", CheckpointPath(rank=2, step=300, name="weights/a")),
        ("300.pai-sdk-new/a", CheckpointPath(rank=0, step=300, name="a", is_replacement=True)),
        ("notes/a", None),
    ],
)
def test_a_path_below_the_checkpoints(path: str, expected: CheckpointPath | None) -> None:
    checkpoint = RunLayout.checkpoint_path(path)
    assert checkpoint == expected
    assert checkpoint is None or path == checkpoint.folder + checkpoint.name


@pytest.mark.parametrize(("rank", "folder"), [(0, "/ml/output/tensorboard"), (2, "/ml/output/tensorboard/rank-2")])
def test_each_rank_has_a_folder(rank: int, folder: str) -> None:
    assert RunLayout.of_rank("/ml/output/tensorboard", rank) == folder
