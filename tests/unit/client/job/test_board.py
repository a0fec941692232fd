"""TensorBoard on a job: the real program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

import pytest

from pai_sdk._client.job.board import Board
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._data.run.report.report_session import ReportSession
from pai_sdk._data.run.report.session import report
from pai_sdk._data.storage.store import Store
from pai_sdk.errors import InvalidInputError, MissingExtraError, ObjectNotFoundError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused
from tests.support.waiting import until


def write_run(folder: Path) -> None:
    with ReportSession(folder).bound():
        for step in range(3):
            report({"loss": 1.0 / (step + 1)}, step=step)


def tags_at(url: str) -> dict[str, dict[str, object]]:
    with urllib.request.urlopen(f"{url.rstrip('/')}/data/plugin/scalars/tags", timeout=30) as answer:
        return json.load(answer)


def test_a_local_folder_is_shown_as_it_is(tmp_path: Path) -> None:
    write_run(tmp_path)
    backend = FakeBackend()
    uri = (tmp_path / "tensorboard").as_uri()
    backend.extra = {"OutputChannels": [{"Name": "tensorboard", "OutputUri": uri}]}
    with TrainingJob("train0123456789ab", backend).tensorboard() as board:
        assert board.url in board._repr_html_()
        until(lambda: any("loss" in tags for tags in tags_at(board.url).values()), "the metric in TensorBoard")
    with pytest.raises(OSError, match="refused"):
        tags_at(board.url)
    board.close()


@pytest.mark.slow
def test_a_folder_elsewhere_is_copied_and_removed_in_the_end(tmp_path: Path) -> None:
    places: list[Path] = []

    def copy(folder: Path) -> None:
        places.append(folder)
        write_run(folder)

    with Board(None, copy):
        assert (places[0] / "tensorboard").is_dir()
    assert not places[0].exists()
    assert not [thread for thread in threading.enumerate() if "_copy_periodically" in thread.name]


@pytest.mark.slow
def test_a_job_that_has_reported_nothing_yet(tmp_path: Path) -> None:
    class Empty(FakeBackend):
        def store(self, uri: str) -> Store:
            raise ObjectNotFoundError("nothing is there", uri=uri)

    backend = Empty()
    backend.extra = {"OutputChannels": [{"Name": "tensorboard", "OutputUri": "oss://bucket/runs/tensorboard/"}]}
    with TrainingJob("train0123456789ab", backend).tensorboard() as board:
        assert tags_at(board.url) == {}


def test_close_ends_the_program_before_it_waits_for_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tensorboard" / "main.py"
    program.parent.mkdir()
    program.with_name("__init__.py").touch()
    program.write_text(
        "import sys, time; print('http://127.0.0.1:1/', file=sys.stderr, flush=True); time.sleep(600)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    board, join, exit_codes = Board(tmp_path), threading.Thread.join, []

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        exit_codes.append(board._program.poll())
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    board.close()
    assert board._program.poll() is not None
    assert None not in exit_codes
    assert not [thread for thread in threading.enumerate() if "_read" in thread.name]


def test_one_that_is_not_closed_ends_with_the_program(tmp_path: Path) -> None:
    module = tmp_path / "tensorboard" / "main.py"
    module.parent.mkdir()
    module.with_name("__init__.py").touch()
    module.write_text(
        "import sys, time; print('http://127.0.0.1:1/', file=sys.stderr, flush=True); time.sleep(600)"
    )
    program = (
        "from pai_sdk._client.job.board import Board\n"
        "board = Board(None, lambda folder: None)\n"
        "print(board._program.pid)\n"
    )
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=60, check=True
    )
    try:
        with pytest.raises(ProcessLookupError):
            os.kill(int(done.stdout), signal.SIGKILL)
    finally:
        assert not list(tmp_path.glob("pai-board-*"))


def test_a_job_without_that_output() -> None:
    with refused(InvalidInputError, "channel"):
        TrainingJob("train0123456789ab", FakeBackend()).tensorboard()


def test_tensorboard_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(MissingExtraError):
        Board(tmp_path)


def test_a_copy_that_fails_at_once_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def copy(folder: Path) -> None:
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        Board(None, copy)
    assert not list(tmp_path.iterdir())
