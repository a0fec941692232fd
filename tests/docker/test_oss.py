"""Local jobs with OSS: inputs through the cache, code, and outputs saved by the next look."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import oss2
import psutil
import pytest

from pai_sdk import Estimator, Processor, Session
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._data.run.report.checkpoints import commit
from pai_sdk._data.run.store.stored_checkpoints import complete_checkpoints
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._wire.pai.roles import Mount
from pai_sdk.errors import ConflictError, InvalidInputError, JobFailed
from tests.docker.conftest import lines_of, remove_all
from tests.docker.engine import BASE_IMAGE, Engine
from tests.docker.test_service import session_on
from tests.service.services import Client, running_service
from tests.support.leftovers import end_processes_of
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A service whose object store is used; jobs run elsewhere."""
    with running_service(tmp_path / "service") as client:
        yield client


@pytest.fixture
def bucket(client: Client) -> oss2.Bucket:
    return client.bucket()


@pytest.fixture
def session(
    docker_host: Engine, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    monkeypatch.setenv("PAI_LOCAL_DIR", str(tmp_path / "local"))
    with session_on(client.info) as session:
        yield session
        for job in session.list_jobs(local=True):
            remove_all(docker_host, job.id)


def processor(session: Session, command: str, **more: object) -> Processor:
    return Processor(BASE_IMAGE, command, instance_type="local", session=session, **more)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the objects whose content was fetched."""
    keys: list[str] = []
    fetch = OssClient.get_file

    def get_file(self: OssClient, uri: object, path: Path) -> object:
        keys.append(uri.key)
        return fetch(self, uri, path)

    monkeypatch.setattr(OssClient, "get_file", get_file)
    return keys


def test_inputs_are_fetched_once_and_again_when_they_change(
    session: Session, client: Client, bucket: oss2.Bucket, fetched: list[str]
) -> None:
    for key in ("data/a.txt", "data/deep/b.txt"):
        bucket.put_object(key, f"content of {key}")
    see = processor(session, "cd /ml/input/data/train && find . -type f | sort | xargs cat; ls -l | wc -l")
    uri = f"oss://{client.info.bucket}/data/"
    first = lines_of(see.run({"train": uri}, show_logs=False))
    assert "content of data/a.txtcontent of data/deep/b.txt" in first[0]
    assert sorted(fetched) == ["data/a.txt", "data/deep/b.txt"]
    assert lines_of(see.run({"train": uri}, show_logs=False)) == first
    assert len(fetched) == 2
    bucket.put_object("data/a.txt", "changed")
    assert "changedcontent of data/deep/b.txt" in lines_of(see.run({"train": uri}, show_logs=False))[0]
    assert fetched[2:] == ["data/a.txt"]


def test_a_job_cannot_harm_the_cache_and_one_object_is_one_file(
    session: Session, client: Client, bucket: oss2.Bucket
) -> None:
    bucket.put_object("data/a.txt", "pure")
    uri = f"oss://{client.info.bucket}/data/a.txt"
    spoil = processor(session, 'echo spoilt >"$PAI_INPUT_TRAIN"; cat "$PAI_INPUT_TRAIN"')
    job = spoil.run({"train": uri}, show_logs=False)
    assert "Read-only file system" in lines_of(job)[0]
    assert lines_of(job)[1] == "pure"


def test_code_in_oss(session: Session, client: Client, bucket: oss2.Bucket) -> None:
    bucket.put_object("code/main.py", "print('from oss')")
    job = processor(session, "python main.py", source_dir=f"oss://{client.info.bucket}/code/").run(show_logs=False)
    assert lines_of(job) == ["from oss"]


def test_what_is_not_there_is_named_and_leaves_nothing(session: Session, client: Client, tmp_path: Path) -> None:
    uri = f"oss://{client.info.bucket}/nothing/"
    with pytest.raises(Exception, match="nothing/: no such file or folder"):
        processor(session, "true").run({"train": uri}, show_logs=False)
    assert list((tmp_path / "local" / "jobs").iterdir()) == []


def test_outputs_go_to_oss(session: Session, client: Client, bucket: oss2.Bucket, tmp_path: Path) -> None:
    run = processor(session, "mkdir /ml/output/model/deep; echo good >/ml/output/model/deep/m.txt")
    job = run.run(outputs={"model": f"oss://{client.info.bucket}/out/"}, show_logs=False)
    assert bucket.get_object("out/deep/m.txt").read() == b"good\n"
    assert run.get_outputs_data() == {"model": f"oss://{client.info.bucket}/out/"}
    assert job.download("model", tmp_path / "model", progress=False).joinpath("deep/m.txt").read_text() == "good\n"
    job.delete()
    assert bucket.object_exists("out/deep/m.txt")


@pytest.mark.parametrize("end", ["exit 0", "exit 3"])
def test_until_they_are_saved_the_job_says_so(
    session: Session, client: Client, bucket: oss2.Bucket, tmp_path: Path, end: str
) -> None:
    """The bucket does not exist, then it does."""
    run = processor(session, f"echo kept >/ml/output/model/m.txt; {end}")
    job = run.run(outputs={"model": "oss://later/out/"}, wait=False, show_logs=False)
    list(job.logs(follow=True))
    with pytest.raises(JobFailed, match="could not be saved") as failed:
        job.wait(PATIENCE_S, show_logs=False)
    kept = tmp_path / "local" / "jobs" / job.id / "ml" / "output"
    assert str(kept) in str(failed.value)
    assert (kept / "model" / "m.txt").read_text() == "kept\n"
    with pytest.raises(ConflictError, match="could not be saved"):
        job.delete()
    assert session.local.prune() == []

    later = oss2.Bucket(bucket.auth, client.info.oss_endpoint, "later", region=client.info.region_id)
    later.create_bucket()
    assert job.refresh().status == ("Succeed" if end == "exit 0" else "Failed")
    assert "could not be saved" not in (job.record.reason_message or "")
    assert later.get_object("out/m.txt").read() == b"kept\n"
    assert session.local.prune() == [job.id]


def test_a_list_shows_a_job_as_running_until_its_outputs_are_saved(
    session: Session, client: Client, tmp_path: Path
) -> None:
    run = processor(session, "echo good >/ml/output/model/m.txt")
    job = run.run(outputs={"model": f"oss://{client.info.bucket}/out/"}, wait=False, show_logs=False)
    other = LocalBackend(tmp_path / "local")
    try:
        record = until(lambda: next((each for each in other.list() if each.reason_code == "SavingOutputs"), None))
        assert record.status == "Running"
        assert "when the job is next queried" in (record.reason_message or "")
    finally:
        other.close()
    assert job.wait(PATIENCE_S, show_logs=False).status == "Succeed"
    assert next(iter(session.list_jobs(local=True))).status == "Succeed"


_WAIT = """
import os, sys
from pathlib import Path
from pai_sdk._client.backend.local import backend
from pai_sdk._host.execution.output_uploader import OutputUploader
from pai_sdk._client.job.training_job import TrainingJob
def stuck(*arguments, **named):
    print("saving", flush=True)
    import time; time.sleep(1000)
OutputUploader.upload = stuck
there = backend.LocalBackend(Path(sys.argv[1]), files=lambda embedded: None)
TrainingJob(sys.argv[2], there).wait(show_logs=False)
"""


def test_a_waiter_killed_while_it_saves_is_no_loss(
    session: Session, client: Client, bucket: oss2.Bucket, tmp_path: Path
) -> None:
    run = processor(session, "echo good >/ml/output/model/m.txt")
    job = run.run(outputs={"model": f"oss://{client.info.bucket}/out/"}, wait=False, show_logs=False)
    program = [sys.executable, "-c", _WAIT, str(tmp_path / "local"), job.id]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdout.readline() == "saving\n"
        waiter.send_signal(signal.SIGKILL)
    assert job.wait(PATIENCE_S, show_logs=False).status == "Succeed"
    assert bucket.get_object("out/m.txt").read() == b"good\n"


def test_what_only_a_service_can_read_is_refused(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="nas://"):
        processor(session, "true").run({"train": "nas://0a1b2c.cn-hangzhou/data/"}, show_logs=False)


def test_without_a_region_it_is_said_what_is_missing(
    docker_host: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAI_LOCAL_DIR", str(tmp_path / "local"))
    with Session() as session, pytest.raises(Exception, match=r"region|endpoint|bucket"):
        processor(session, "true").run({"train": "oss://models/data/"}, show_logs=False)
    assert not (Path.home() / ".pai" / "service").exists()


@pytest.fixture
def embedded(docker_host: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The embedded service of this user, with an object; local jobs of other sessions are there for it."""
    monkeypatch.setenv("PAI_LOCAL_DIR", str(tmp_path / "local"))
    (tmp_path / "a.txt").write_text("pure")
    with Session.embedded() as session:
        session.upload(tmp_path / "a.txt", f"oss://{session.settings.oss_bucket_name}/data/a.txt", progress=False)
        yield session
        for job in session.list_jobs(local=True):
            remove_all(docker_host, job.id)
    end_processes_of(Path.home())


def test_where_nothing_is_configured_oss_is_that_of_the_embedded_service(
    embedded: Session, tmp_path: Path
) -> None:
    bucket = embedded.settings.oss_bucket_name
    copy = processor(None, 'cp "$PAI_INPUT_TRAIN" "$PAI_OUTPUT_MODEL"')
    job = copy.run({"train": f"oss://{bucket}/data/a.txt"}, {"model": f"oss://{bucket}/out/"}, show_logs=False)
    assert embedded.download(f"oss://{bucket}/out/a.txt", tmp_path / "b.txt", progress=False).read_text() == "pure"
    assert job.download("model", tmp_path / "model", progress=False).joinpath("a.txt").read_text() == "pure"


def test_outputs_go_to_the_service_that_a_job_was_submitted_with(
    embedded: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the process that looks after the end is configured for another one."""
    bucket = embedded.settings.oss_bucket_name
    job = processor(embedded, 'echo good >"$PAI_OUTPUT_MODEL/m.txt"').run(
        outputs={"model": f"oss://{bucket}/out/"}, wait=False, show_logs=False
    )
    with Session("cn-hangzhou", "1", oss_bucket_name="theirs", access_key_id="i", access_key_secret="s") as other:
        assert other.get_job(job.id).wait(PATIENCE_S, show_logs=False).status == "Succeed"
    assert embedded.download(f"oss://{bucket}/out/", tmp_path / "out", progress=False).joinpath("m.txt").exists()


def test_a_job_goes_on_from_the_checkpoints_of_an_earlier_one(session: Session, client: Client) -> None:
    count = (
        'cd "$PAI_OUTPUT_CHECKPOINTS"; n=$(cat step 2>/dev/null || echo 0); echo "from $n"; echo $((n + 1)) > step'
    )
    kept = f"oss://{client.info.bucket}/kept/checkpoints/"
    counting = processor(session, count)
    for expected in ("from 0", "from 1", "from 2"):
        job = counting.run(outputs={"checkpoints": kept}, show_logs=False)
        assert lines_of(job) == [expected]


def test_a_newer_checkpoint_of_another_job_is_not_replaced_by_the_one_this_job_began_with(
    session: Session, client: Client, bucket: oss2.Bucket
) -> None:
    bucket.put_object("kept/of-both", b"old")
    writing = processor(
        session, 'cat "$PAI_OUTPUT_CHECKPOINTS/of-both"; echo mine > "$PAI_OUTPUT_CHECKPOINTS/mine"'
    )
    outputs = {"checkpoints": f"oss://{client.info.bucket}/kept/"}
    job = writing.run(outputs=outputs, wait=False, show_logs=False)
    bucket.put_object("kept/of-both", b"newer")
    job.wait(PATIENCE_S, show_logs=False)
    assert lines_of(job) == ["old"]
    assert bucket.get_object("kept/of-both").read() == b"newer"
    assert bucket.get_object("kept/mine").read() == b"mine\n"


_SAVING = """
cd "$PAI_OUTPUT_CHECKPOINTS"
for name in one two three; do
    echo $name > $name
    until [ -e after-$name ]; do sleep 0.05; done
done
echo last > last
"""


def uploaders() -> list[psutil.Process]:
    """The uploading processes of this test, which has a HOME of its own."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_ours = process.environ().get("HOME") == str(Path.home())
            if is_ours and any("backend.local.uploading" in word for word in process.cmdline()):
                found.append(process)
    return found


def test_outputs_of_a_running_job_are_sent_with_nobody_looking(
    session: Session, client: Client, bucket: oss2.Bucket, tmp_path: Path
) -> None:
    session.local.steps.upload_interval_s = 0.2
    uri = f"oss://{client.info.bucket}/out/"
    job = processor(session, _SAVING).run(outputs={"checkpoints": uri}, wait=False, show_logs=False)
    root = tmp_path / "local" / "jobs" / job.id
    checkpoints = root / "ml" / "output" / "checkpoints"
    until(lambda: bucket.object_exists("out/one"))

    # The uploader dies: the next look at the job starts another one.
    (killed,) = uploaders()
    killed.kill()
    until(lambda: not uploaders())
    (checkpoints / "after-one").touch()
    until((checkpoints / "two").exists)
    until(lambda: job.refresh() and bucket.object_exists("out/two"))
    until(lambda: len(uploaders()) == 1)

    (checkpoints / "after-two").touch()
    (checkpoints / "after-three").touch()
    until(lambda: bucket.object_exists("out/last"))
    until(lambda: not uploaders())
    written = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    assert not any(client.info.access_key_secret.encode() in content for content in written)
    assert job.wait(PATIENCE_S, show_logs=False).status == "Succeed"


@pytest.mark.parametrize("target", ["oss", "folder"])
def test_a_local_job_resumes_from_a_checkpoint_that_is_elsewhere(
    session: Session, client: Client, tmp_path: Path, target: str
) -> None:
    earlier = tmp_path / "earlier" / "7"
    earlier.mkdir(parents=True)
    (earlier / "weights").write_text("seven")
    commit(earlier, step=7)
    resumed = Estimator(
        BASE_IMAGE,
        'cat "$PAI_OUTPUT_CHECKPOINTS/7/weights"; echo; ls "$PAI_OUTPUT_CHECKPOINTS/7"',
        instance_type="local",
        session=session,
        resume=earlier.parent,
        checkpoints_path=f"oss://{client.info.bucket}/resumed/" if target == "oss" else None,
    )
    job = resumed.fit(show_logs=False)
    assert lines_of(job) == ["seven", "_COMPLETE", "weights"]
    assert [found.step for found in complete_checkpoints(job)] == [7]


def test_mounts_are_fetched_and_saved_with_what_was_deleted(
    session: Session, bucket: oss2.Bucket, tmp_path: Path
) -> None:
    for key in ("in/a", "kept/b", "kept/c"):
        bucket.put_object(key, key)
    here = tmp_path / "here"
    plan = processor(session, "cat /mnt/in/a; rm /mnt/kept/b; echo >/mnt/kept/d; echo made >/mnt/here/e").plan()
    name = bucket.bucket_name
    mounts = [
        Mount(path="/mnt/in", uri=f"oss://{name}/in/"),
        Mount(path="/mnt/kept", uri=f"oss://{name}/kept/", access="RW"),
        Mount(path="/mnt/here", uri=here.as_uri(), access="RW"),
    ]
    request = plan.request.model_copy(update={"mounts": mounts})
    job = session.submit(replace(plan, request=request))
    job.wait(show_logs=False)
    assert lines_of(job) == ["in/a"]
    assert {entry.key for entry in bucket.list_objects("kept/").object_list} == {"kept/c", "kept/d"}
    assert (here / "e").read_text() == "made\n"
