"""What a local job finds in its container: files, variables, its user; and what cannot be seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pai_sdk import Processor, Session
from pai_sdk._wire.pai.spec import Channel
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import JobFailed
from tests.docker.conftest import lines_of
from tests.docker.engine import BASE_IMAGE
from tests.support.waiting import PATIENCE_S, until


def test_channels_parameters_and_variables(submit, tmp_path):
    data = tmp_path / "my data"
    data.mkdir()
    (data / "a.txt").write_text("folder")
    single = tmp_path / "one.csv"
    single.write_text("file")
    out = tmp_path / "out"
    job = submit(
        'cat "$PAI_INPUT_TRAIN/a.txt" "$PAI_INPUT_TABLE"; echo; echo "$PAI_HPS_LR|$NOTE|$PWD";'
        'touch "$PAI_INPUT_TRAIN/new" 2>&1 | cut -d: -f3; echo model >"$PAI_OUTPUT_MODEL/m";'
        'eval set -- $PAI_USER_ARGS; echo "$2 $4"',
        InputChannels=[
            {"Name": "train", "InputUri": data.as_uri() + "/"},
            {"Name": "table", "InputUri": single.as_uri()},
        ],
        OutputChannels=[{"Name": "model", "OutputUri": out.as_uri() + "/"}],
        HyperParameters=[{"Name": "lr", "Value": "0.1"}, {"Name": "note", "Value": "it's $(hostile)\n"}],
        Environments={"NOTE": "two words\n'and' \"more\" $HOME"},
    )
    lines = lines_of(job.wait(timeout=PATIENCE_S, show_logs=False))
    assert lines == [
        "folderfile",
        "0.1|two words",
        "'and' \"more\" $HOME|/ml/usercode",
        " Read-only file system",
        "0.1 it's $(hostile)",
        "",
    ]
    assert (out / "m").read_text() == "model\n"
    assert job.download("model", tmp_path / "fetched").joinpath("m").read_text() == "model\n"
    assert sorted(path.name for path in data.iterdir()) == ["a.txt"]


def test_no_secret_is_in_what_the_engine_shows(submit, engine, backend):
    job = submit(
        "echo up; sleep 1000", Environments={"TOKEN": "s3cret"}, HyperParameters=[{"Name": "k", "Value": "v"}]
    )
    next(iter(job.logs(follow=True)))
    with engine.client() as client:
        attributes = json.dumps(client.containers.get(f"{job.id}-master-0").attrs)
    assert "s3cret" not in attributes
    assert lines_of(job) == ["up"], "nor does the log begin with all variables"
    root = backend.data_dir / "jobs" / job.id
    readable = [path for path in root.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert readable
    assert not [path for path in readable if b"s3cret" in path.read_bytes()]
    job.stop()


def test_names_of_folders_and_files_may_hold_anything(engine, monkeypatch, tmp_path):
    """As they do where people name them; some of these signs have a meaning in lists of volumes, and in URIs."""
    odd = tmp_path / "a:b,c=d 'e' \"f\" $g #h ?i %41 损失"
    for name in ("code", "data"):
        (odd / name).mkdir(parents=True)
        (odd / name / name).write_text(name)
    (odd / "one, two:ro").write_text("file")
    monkeypatch.setenv("DOCKER_HOST", engine.socket)
    monkeypatch.setenv("PAI_LOCAL_DIR", str(odd / "local"))
    command = (
        'cat code $PAI_INPUT_FOLDER/data "$PAI_INPUT_FILE";'
        "echo kept >$PAI_OUTPUT_THERE/m; echo too >$PAI_OUTPUT_HERE/m"
    )
    with Session() as session:
        processor = Processor(BASE_IMAGE, command, source_dir=odd / "code", instance_type="local", session=session)
        processor.set_output_channels([Channel(name="there"), Channel(name="here")])
        job = processor.run(
            {"folder": odd / "data", "file": odd / "one, two:ro"}, {"there": odd / "out"}, show_logs=False
        )
        assert lines_of(job) == ["codedatafile"]
        assert (odd / "out" / "m").read_text() == "kept\n"
        assert job.download("here", tmp_path / "fetched").joinpath("m").read_text() == "too\n"
        job.delete()


def test_nothing_is_left_in_the_folder_for_temporary_files(submit, monkeypatch, tmp_path):
    temporary, code = tmp_path / "tmp", tmp_path / "code"
    for folder in (temporary, code):
        folder.mkdir()
    (code / "main.py").write_text("print('ran')")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    where = {"LocationType": "file", "LocationValue": {"Path": str(code)}}
    for command, end in (("python3 main.py", JobStatus.SUCCEED), ("python3 main.py; exit 1", JobStatus.FAILED)):
        job = submit(command, CodeDir=where)
        with suppress(JobFailed):
            job.wait(timeout=PATIENCE_S, show_logs=False)
        assert (job.status, lines_of(job)) == (end, ["ran"])
    assert list(temporary.iterdir()) == []


def test_shared_memory_is_as_large_as_it_is_asked_for_and_larger_than_the_engines(submit):
    size = "df --block-size=1M --output=size /dev/shm | tail -1"
    given = submit(size, compute={"InstanceSpec": {"SharedMemory": "300MiB"}})
    usual = submit(size)
    assert [line.strip() for line in lines_of(given.wait(timeout=PATIENCE_S, show_logs=False))] == ["300"]
    assert int(lines_of(usual.wait(timeout=PATIENCE_S, show_logs=False))[0]) > 256


_HOME = Path(f"/tmp/pai-user-{os.getpid()}")  # no other user may enter pytest's own folder

_AS_USER = """
import sys
from pathlib import Path
from pai_sdk._client.submission import submit
from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._client.job.training_job import TrainingJob
backend = LocalBackend(Path(sys.argv[1]))
request = TrainingJobRequest.model_validate_json(sys.argv[2])
job = TrainingJob(submit(Plan(request), backend, progress=False), backend).wait(timeout=60)
"""


@pytest.fixture
def as_user(engine) -> Iterator[Callable[[str, str | None], subprocess.Popen[str]]]:
    """Submits a command as a user who is not root, and waits; a home of that user is left to be looked at."""
    home = _HOME
    home.mkdir()
    os.chown(home, 1234, 1234)
    socket = Path(engine.socket.removeprefix("unix://"))
    os.chown(socket, 0, 1234)
    socket.chmod(0o660)
    socket.parent.chmod(0o755)

    def as_user(command: str, user: str | None) -> subprocess.Popen[str]:
        request = {
            "TrainingJobName": "test",
            "ComputeResource": {"EcsSpec": "local", "EcsCount": 1},
            "AlgorithmSpec": {"Image": "pai-sdk-test:base", "Command": ["sh", "-c", command]},
            "OutputChannels": [{"Name": "model", "OutputUri": f"file://{home}/out/"}],
            "Settings": {"Tags": {"pai-sdk.local.user": user} if user else {}},
        }
        program = [sys.executable, "-c", _AS_USER, str(home / "local"), json.dumps(request)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "DOCKER_HOST": engine.socket}
        # To the interpreter and these sources, which may lie in a home that no other user may enter.
        rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
        return subprocess.Popen(
            ["setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups", *rights, *program],
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )

    yield as_user
    subprocess.run(["rm", "-rf", str(home)], check=True)


@pytest.mark.parametrize("user", [None, "root"])
def test_files_belong_to_the_caller(as_user, user):
    """Nothing is left that the user could not remove."""
    command = "id -u; touch /ml/usercode/x; mkdir /ml/output/model/sub; touch $HOME/h"
    with as_user(command, user) as process:
        said, _ = process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode == 0, said
    assert ("0" if user else "1234") in said.split()
    assert {path.stat().st_uid for path in _HOME.rglob("*")} == {1234}


def test_they_do_so_even_when_the_container_of_root_is_killed(as_user, engine):
    with as_user("mkdir /ml/output/model/sub; sleep 1000", "root") as process, engine.client() as client:
        until((_HOME / "out" / "sub").exists)
        for container in client.containers.list():
            container.kill()
        process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode != 0
    assert {path.stat().st_uid for path in _HOME.rglob("*")} == {1234}
