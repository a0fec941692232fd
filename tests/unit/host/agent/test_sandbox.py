"""The folder that becomes /ml, and the names it takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._host.agent.instance_logs import InstanceLogs
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.slurm.gang_folder import GangFolder
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._host.execution.docker.shared_folder import SharedFolder
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused
from tests.unit.host.execution.conftest import make_request

BAD_NAMES = ["", ".", "..", "../x", "a/b", "/etc", "a\\b", "a\0b", "a\nb", "x" * 201, "\ud800"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_name_leads_elsewhere(tmp_path: Path, name: str) -> None:
    sandbox = Sandbox(tmp_path)
    for path_of in (sandbox.input_dir, sandbox.output_dir, sandbox.log_file, sandbox.times_file):
        with pytest.raises(InvalidInputError):
            path_of(name)


@pytest.mark.parametrize("name", ["train", "a b", "it's", "数据", "...", "-x", "$(id)"])
def test_odd_names_stay_inside(tmp_path: Path, name: str) -> None:
    assert Sandbox(tmp_path).input_dir(name).parent == tmp_path / "ml" / "input" / "data"


@given(name=st.one_of(st.text(), st.text(alphabet="./\\a\0\n~ ")))
def test_any_name_is_one_file_in_its_folder_or_refused(name: str) -> None:
    sandbox = Sandbox(Path("/srv/job"))
    places = {
        sandbox.input_dir: sandbox.data_dir,
        sandbox.output_dir: sandbox.ml / "output",
        sandbox.log_file: sandbox.logs_dir,
        sandbox.times_file: sandbox.logs_dir,
    }
    for path_of, folder in places.items():
        try:
            path = path_of(name)
        except InvalidInputError:
            continue
        assert Path(os.path.normpath(path)).parent == folder  # as the kernel reads it


def test_all_folders_of_a_request(tmp_path: Path) -> None:
    request = make_request(
        InputChannels=[{"Name": "train", "InputUri": "oss://b/x/"}],
        OutputChannels=[{"Name": "model", "OutputUri": "oss://b/m/"}],
    )
    sandbox = Sandbox(tmp_path / "job")
    sandbox.create(request)
    sandbox.create(request)
    assert sorted(str(p.relative_to(sandbox.root)) for p in sandbox.root.rglob("*")) == [
        "logs",
        "ml",
        "ml/input",
        "ml/input/config",
        "ml/input/data",
        "ml/input/data/train",
        "ml/output",
        "ml/output/model",
        "ml/usercode",
        "state",
    ]


def test_a_bad_channel_makes_nothing(tmp_path: Path) -> None:
    request = make_request(InputChannels=[{"Name": "../../x", "InputUri": "oss://b/x/"}])
    with refused(InvalidInputError, "input channel '../../x'"):
        Sandbox(tmp_path / "job").create(request)
    assert list(tmp_path.iterdir()) == []


def test_the_paths_of_a_job_do_not_need_its_folder() -> None:
    assert Sandbox(Path("/srv/jobs/train1")).input_dir("train") == Path("/srv/jobs/train1/ml/input/data/train")


def test_a_missing_folder_is_that_of_a_job_that_was_not_started(tmp_path: Path) -> None:
    root = tmp_path / "none"
    assert DockerExecutor().state(root).phase == "absent"
    assert Journal(root / "state").state() is None
    assert GangFolder(root / "shared").claim is None
    assert not SharedFolder(root / "shared").is_launched
    assert InstanceLogs(Sandbox(root), ["train1-master-0"]).size_bytes("train1-master-0") == 0
