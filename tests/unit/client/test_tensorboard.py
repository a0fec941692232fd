"""TensorBoard by alipai's names: the real program, on a folder of this machine or of a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import requests

from pai_sdk._client.tensorboard import TensorBoard, TensorBoardStatus
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk.errors import InvalidInputError, WrongCallError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until


def logs(folder: Path) -> Path:
    with EventWriter(folder) as writer:
        writer.scalars({"loss": 0.5}, step=1)
    return folder


@pytest.mark.slow
def test_it_starts_stops_starts_again_and_is_deleted(tmp_path: Path) -> None:
    board = TensorBoard.create(str(logs(tmp_path / "a 1%")))
    assert board.status == TensorBoardStatus.Running
    assert TensorBoardStatus.is_running(board.status)
    assert board.app_uri in board._repr_html_()
    found = until(
        lambda: requests.get(f"{board.app_uri}data/runs", timeout=PATIENCE_S).json(), "the run of the folder"
    )
    assert found == ["."]
    board.stop()
    assert (board.status, board.app_uri) == (TensorBoardStatus.Stopped, None)
    assert TensorBoardStatus.is_terminated(board.status)
    board.start()
    board.start()
    assert requests.get(str(board.app_uri), timeout=PATIENCE_S).ok
    board.delete()
    assert repr(board) == "<TensorBoard a 1% Deleted>"
    with refused(InvalidInputError, "tensorboard"):
        board.start()


@pytest.mark.slow
def test_it_stops_by_itself_after_the_longest_time(tmp_path: Path) -> None:
    with TensorBoard.create(str(tmp_path), max_runtime_in_minutes=1 / 600, display_name="short") as board:
        until(lambda: board.status == TensorBoardStatus.Stopped, "the end of the board")
    assert board.display_name == "short"


@pytest.mark.slow
def test_it_ends_with_the_program(tmp_path: Path) -> None:
    code = (
        "import sys; from pai_sdk.tensorboard import TensorBoard; print(TensorBoard.create(sys.argv[1]).app_uri)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    with pytest.raises(requests.ConnectionError):
        requests.get(done.stdout.strip(), timeout=PATIENCE_S)


def test_what_cannot_be_is_refused_before_it_starts(tmp_path: Path) -> None:
    with refused(InvalidInputError, "max_runtime_in_minutes"):
        TensorBoard.create(str(tmp_path), max_runtime_in_minutes="long")  # type: ignore[arg-type]
    with refused(WrongCallError, "source_id"):
        TensorBoard.create(str(tmp_path), source_id="x")  # type: ignore[call-arg]
