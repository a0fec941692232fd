"""RunManager: what a user sees of many runs while they grow."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from pai_sdk.errors import RunNotFoundError
from pai_sdk.run.manager import RunManager
from tests.unit.run.event_runs import write_run


def test_runs_below_a_folder_are_found_and_read(tmp_path: Path) -> None:
    write_run(tmp_path / "slow", {"loss": [1.0, 0.9, 0.8]})
    write_run(tmp_path / "group" / "fast" / "tensorboard", {"loss": [1.0, 0.5, 0.25]})
    with RunManager(tmp_path, refresh_s=0) as manager:
        assert manager.refresh().status == "DONE"
        page = manager.runs(sort="metrics.loss")
        assert [run.id for run in page.runs] == ["group/fast", "slow"]
        assert page.runs[0].tags["loss"].last.value == 0.25
        run = manager.run("group/fast")
        assert run.scalars("loss").value.tolist() == [1.0, 0.5, 0.25]
        assert run.read_last("loss").step == 2
        with pytest.raises(RunNotFoundError, match="did you mean 'slow'"):
            manager.run("slov")
