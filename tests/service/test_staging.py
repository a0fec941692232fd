"""Code, inputs and outputs, between the object store and a job's folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pai_sdk._data.run.report.checkpoints import CheckpointConfig, commit, rotate, start_checkpoint
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.job_folder import JobFolder
from pai_sdk._host.execution.output_uploader import UploadCancelled
from pai_sdk._service.background.active_job import Publisher
from pai_sdk._service.oss.bucket_store import BucketStore
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.services.jobs.staging import ServiceStaging, StagingCancelled, StagingFailed
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import StorageError
from tests.service.objects.contents import LARGE
from tests.service.services import job_body


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path / "objects") as store:
        store.create_bucket("data")
        for key in ("code/train.py", "code/lib/a b'\n.py", "in/x.csv", "in/deep/y.csv", "in.csv"):
            store.put_bytes("data", key, key.encode())
        yield store


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path / "job")


def request(**fields: Any) -> TrainingJobRequest:
    return TrainingJobRequest.model_validate(job_body(**fields))


def code(key: str, **location: str) -> dict[str, Any]:
    return {"LocationType": "oss", "LocationValue": {"Bucket": "data", "Key": key, **location}}


def inputs(*uris: str) -> list[dict[str, str]]:
    return [{"Name": f"in{n}", "InputUri": uri} for n, uri in enumerate(uris)]


def publish_file(store: ObjectStore, sandbox: Sandbox, wanted: TrainingJobRequest) -> None:
    ServiceStaging(store, JobFolder(sandbox), wanted, is_cancelled=lambda: False).fill()


def files(folder: Path) -> dict[str, str]:
    return {str(f.relative_to(folder)): f.read_text() for f in folder.rglob("*") if f.is_file()}


def test_code_and_inputs_lie_where_the_job_looks_for_them(store: ObjectStore, sandbox: Sandbox) -> None:
    wanted = request(
        CodeDir=code("code/"), InputChannels=inputs("oss://data/in/", "oss://data/in.csv", "oss://data/in")
    )
    for _ in range(2):  # once more, as after a restart
        publish_file(store, sandbox, wanted)
        assert files(sandbox.usercode) == {"train.py": "code/train.py", "lib/a b'\n.py": "code/lib/a b'\n.py"}
        assert files(sandbox.input_dir("in0")) == {"x.csv": "in/x.csv", "deep/y.csv": "in/deep/y.csv"}
        assert files(sandbox.input_dir("in1")) == {"in.csv": "in.csv"}
        assert files(sandbox.input_dir("in2")) == files(sandbox.input_dir("in0"))


def test_a_job_finds_the_checkpoints_that_an_earlier_one_left(store: ObjectStore, sandbox: Sandbox) -> None:
    outputs = [{"Name": name, "OutputUri": f"oss://data/kept/{name}"} for name in ("checkpoints", "model")]
    wanted = request(OutputChannels=outputs)
    publish_file(store, sandbox, wanted)
    assert files(sandbox.output_dir("checkpoints")) == {}
    for key in ("checkpoints/step-1/weights", "checkpoints-of-another/weights", "model/weights"):
        store.put_bytes("data", f"kept/{key}", key.encode())
    publish_file(store, sandbox, wanted)
    assert files(sandbox.output_dir("checkpoints")) == {"step-1/weights": "checkpoints/step-1/weights"}
    assert files(sandbox.output_dir("model")) == {}


RESUMING = {"OutputChannels": [{"Name": "checkpoints", "OutputUri": "oss://data/out/"}]}


def test_a_job_that_goes_on_sends_only_what_it_has_changed(store: ObjectStore, sandbox: Sandbox) -> None:
    wanted, folder = request(**RESUMING), sandbox.output_dir("checkpoints")
    for name in ("a", "b", "c", "deep/d"):
        store.put_bytes("data", f"out/{name}", b"earlier")
    publish_file(store, sandbox, wanted)
    store.put_bytes("data", "out/a", b"of another job, meanwhile")
    (folder / "b").write_text("changed by this job")
    (folder / "c").unlink()
    (folder / "e").write_text("new")
    for _ in range(2):  # once more, as after a restart of the service
        assert Publisher(store, JobFolder(sandbox), wanted).upload(live_only=False) == ""
    assert keys(store) == {
        "out/a": b"of another job, meanwhile",
        "out/b": b"changed by this job",
        "out/c": b"earlier",
        "out/deep/d": b"earlier",
        "out/e": b"new",
    }


def test_without_the_note_of_what_was_there_all_is_sent(store: ObjectStore, sandbox: Sandbox) -> None:
    wanted = request(**RESUMING)
    store.put_bytes("data", "out/a", b"earlier")
    publish_file(store, sandbox, wanted)
    store.delete("data", "out/a")
    sandbox.resumed_file.write_text('["checkpoints", "a"')
    assert Publisher(store, JobFolder(sandbox), wanted).upload(live_only=False) == ""
    assert keys(store) == {"out/a": b"earlier"}


def test_it_is_told_what_a_job_goes_on_from(store: ObjectStore, sandbox: Sandbox) -> None:
    told: list[str] = []
    for _ in range(2):
        ServiceStaging(
            store, JobFolder(sandbox), request(**RESUMING), is_cancelled=lambda: False, notify=told.append
        ).fill()
        store.put_bytes("data", "out/a", bytes(2000))
    assert told == [
        "Output channel 'checkpoints' continues from the files at oss://data/out/; downloading them.",
        "Output channel 'checkpoints' starts with 2,000 bytes of earlier files.",
    ]


def test_a_job_that_cannot_be_put_in_place_keeps_no_room(store: ObjectStore, sandbox: Sandbox) -> None:
    store.put_bytes("data", "code/z/" + "n" * 300, b"x")
    with pytest.raises(StagingFailed) as caught:
        publish_file(store, sandbox, request(CodeDir=code("code/")))
    assert "File name too long: '/ml/usercode/z/nnn" in caught.value.message
    assert not sandbox.ml.exists()


def test_the_code_may_be_one_file_and_have_an_endpoint(store: ObjectStore, sandbox: Sandbox) -> None:
    publish_file(store, sandbox, request(CodeDir=code("code/train.py", Endpoint="http://127.0.0.1:1")))
    assert files(sandbox.usercode) == {"train.py": "code/train.py"}


@pytest.mark.parametrize(
    ("fields", "reason_code", "message"),
    [
        ({"CodeDir": code("none/")}, "CodeNotFound", "nothing exists at oss://data/none/"),
        ({"CodeDir": {**code("a/"), "LocationType": "git"}}, "NotSupported", "from OSS only"),
        ({"CodeDir": {"LocationValue": {"Url": "x"}}}, "CodeNotFound", "Bucket and Key"),
        (
            {"CodeDir": code("code/", Endpoint="oss-cn-hangzhou.aliyuncs.com")},
            "NotSupported",
            "object store of its own",
        ),
        ({"InputChannels": inputs("oss://data/none")}, "InputNotFound", "input channel 'in0': nothing exists"),
        ({"InputChannels": inputs("oss://other/a/")}, "InputNotFound", "no bucket 'other'"),
        ({"InputChannels": inputs("nas://fs/a/")}, "NotSupported", "oss:// URIs only"),
        ({"InputChannels": inputs("odps://p/tables/t")}, "NotSupported", "oss:// URIs only"),
        ({"InputChannels": inputs("file:///etc/passwd")}, "NotSupported", "oss:// URIs only"),
        ({"InputChannels": [{"Name": "a", "DatasetId": "d-1"}]}, "NotSupported", "dataset"),
        ({"InputChannels": inputs("oss://data.oss-cn-x.aliyuncs.com/in/")}, "NotSupported", "aliyuncs.com"),
        ({"OutputChannels": [{"Name": "m", "OutputUri": "oss://other/m/"}]}, "InputNotFound", "no bucket 'other'"),
        ({"OutputChannels": [{"Name": "m", "OutputUri": "cpfs://fs/m/"}]}, "NotSupported", "output channel 'm'"),
    ],
)
def test_what_cannot_be_staged_says_why(
    store: ObjectStore, sandbox: Sandbox, fields: dict[str, Any], reason_code: str, message: str
) -> None:
    with pytest.raises(StagingFailed) as caught:
        publish_file(store, sandbox, request(**fields))
    assert caught.value.reason_code == reason_code
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["../out", "a/../../../out", "/out", "a//b", "./x", "..", "a/.", "a\0b"])
def test_no_key_leads_out_of_its_folder(store: ObjectStore, sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    try:
        store.put_bytes("data", f"evil/{name}", b"x")
    except Exception:
        pytest.fail("the store refuses it already: choose another key")
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(sandbox.root)}
    with pytest.raises(StagingFailed) as caught:
        publish_file(store, sandbox, request(InputChannels=inputs("oss://data/evil/")))
    assert caught.value.reason_code == "InvalidObjectKey"
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(sandbox.root)} == before


def test_an_object_that_is_written_while_others_are_copied_is_whole(
    store: ObjectStore, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_bytes("data", "in/x.csv", b"old")
    listing = ObjectStore.list

    def list_then_replace(self: ObjectStore, *args: Any, **options: Any) -> list[Any]:
        found = list(listing(self, *args, **options))
        self.put_bytes("data", "in/x.csv", b"the new one")
        self.delete("data", "in/deep/y.csv")
        return found

    monkeypatch.setattr(ObjectStore, "list", list_then_replace)
    publish_file(store, sandbox, request(InputChannels=inputs("oss://data/in/")))
    assert files(sandbox.input_dir("in0")) == {"x.csv": "the new one"}


@pytest.mark.parametrize("key", ["both/a/b", "both/a/"])
def test_a_key_that_is_file_and_folder_at_once_is_told(store: ObjectStore, sandbox: Sandbox, key: str) -> None:
    store.put_bytes("data", "both/a", b"x")
    store.put_bytes("data", key, b"x")
    with pytest.raises(StagingFailed, match=f"oss://data/{key} cannot be put in place: one name cannot be a file"):
        publish_file(store, sandbox, request(InputChannels=inputs("oss://data/both/")))


def test_staging_ends_when_nobody_wants_it(store: ObjectStore, sandbox: Sandbox) -> None:
    with pytest.raises(StagingCancelled):
        ServiceStaging(store, JobFolder(sandbox), request(CodeDir=code("code/")), is_cancelled=lambda: True).fill()


# ---- outputs ----------------------------------------------------------------------------------------------

OUTPUTS = [
    {"Name": "model", "OutputUri": "oss://data/out/model/"},
    {"Name": "checkpoints", "OutputUri": "oss://data/out/ckpt"},
]


def keys(store: ObjectStore) -> dict[str, bytes]:
    found = {}
    for info in store.list("data", "out/"):
        with store.open("data", info.key) as stream:
            found[info.key] = stream.read()
    return found


@pytest.fixture
def publisher(store: ObjectStore, sandbox: Sandbox) -> Publisher:
    wanted = request(OutputChannels=OUTPUTS)
    publish_file(store, sandbox, wanted)
    return Publisher(store, JobFolder(sandbox), wanted)


def test_live_channels_first_and_all_at_the_end(
    publisher: Publisher, store: ObjectStore, sandbox: Sandbox
) -> None:
    (sandbox.output_dir("model") / "m n'ü.pt").write_text("1")
    (sandbox.output_dir("checkpoints") / "deep").mkdir()
    (sandbox.output_dir("checkpoints") / "deep" / "c.pt").write_text("2")
    assert publisher.has_live_channels
    assert publisher.upload(live_only=True) == ""
    assert keys(store) == {"out/ckpt/deep/c.pt": b"2"}
    assert publisher.upload(live_only=False) == ""
    assert keys(store) == {"out/ckpt/deep/c.pt": b"2", "out/model/m n'ü.pt": b"1"}


def test_only_what_has_changed_is_sent_again(publisher: Publisher, store: ObjectStore, sandbox: Sandbox) -> None:
    path = sandbox.output_dir("model") / "m.pt"
    path.write_text("1")
    publisher.upload(live_only=False)
    first = store.head("data", "out/model/m.pt").modified_at
    publisher.upload(live_only=False)
    assert store.head("data", "out/model/m.pt").modified_at == first
    path.write_text("23")
    publisher.upload(live_only=False)
    assert keys(store)["out/model/m.pt"] == b"23"


def checkpoint(folder: Path, step: int) -> None:
    (folder / str(step)).mkdir()
    (folder / str(step) / "weights").write_text(f"{step}")
    commit(folder / str(step), step=step)


def test_checkpoints_that_the_job_removes_are_removed_at_the_uri_too(store: ObjectStore, sandbox: Sandbox) -> None:
    """Both those it has sent, also through an earlier service, and those that it found when it began."""
    wanted = request(OutputChannels=OUTPUTS)
    publish_file(store, sandbox, wanted)
    checkpoint(sandbox.output_dir("checkpoints"), 1)
    Publisher(store, JobFolder(sandbox), wanted).upload(live_only=False)

    sandbox = Sandbox(sandbox.root.with_name("next"))
    publish_file(store, sandbox, wanted)
    folder = sandbox.output_dir("checkpoints")
    assert (folder / "1" / "weights").exists()
    checkpoint(folder, 2)
    assert Publisher(store, JobFolder(sandbox), wanted).upload(live_only=True) == ""
    checkpoint(folder, 3)
    rotate(folder, CheckpointConfig(num_to_keep=1))
    assert Publisher(store, JobFolder(sandbox), wanted).upload(live_only=False) == ""
    assert set(keys(store)) == {"out/ckpt/3/_COMPLETE", "out/ckpt/3/weights"}


def test_a_checkpoint_of_a_killed_job_is_neither_kept_nor_fetched(store: ObjectStore, sandbox: Sandbox) -> None:
    wanted = request(OutputChannels=OUTPUTS)
    publish_file(store, sandbox, wanted)
    folder = sandbox.output_dir("checkpoints")
    checkpoint(folder, 1)
    start_checkpoint(folder / "2")
    (folder / "2" / "weights").write_text("half")
    for live_only in (True, False):
        assert Publisher(store, JobFolder(sandbox), wanted).upload(live_only=live_only) == ""
    assert set(keys(store)) == {"out/ckpt/1/_COMPLETE", "out/ckpt/1/weights"}

    # Of a service whose machine was lost while it published a complete one.
    for key in ("3/_INCOMPLETE", "3/weights"):
        store.put_bytes("data", f"out/ckpt/{key}", b"half")
    sandbox = Sandbox(sandbox.root.with_name("next"))
    publish_file(store, sandbox, wanted)
    assert set(files(sandbox.output_dir("checkpoints"))) == {"1/_COMPLETE", "1/weights"}
    checkpoint(sandbox.output_dir("checkpoints"), 3)
    assert Publisher(store, JobFolder(sandbox), wanted).upload(live_only=False) == ""
    assert {key for key in keys(store) if "/3/" in key} == {"out/ckpt/3/_COMPLETE", "out/ckpt/3/weights"}


def test_the_only_checkpoint_stays_until_the_next_one_is_published(
    store: ObjectStore, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = request(OutputChannels=OUTPUTS)
    publish_file(store, sandbox, wanted)
    folder = sandbox.output_dir("checkpoints")
    checkpoint(folder, 1)
    Publisher(store, JobFolder(sandbox), wanted).upload(live_only=True)
    checkpoint(folder, 2)
    rotate(folder, CheckpointConfig(num_to_keep=1))
    with monkeypatch.context() as failing:
        real = BucketStore.write

        def refuse(there: BucketStore, path: str, *args: Any, **more: Any) -> StoredFile:
            if path.endswith("2/weights"):
                raise StorageError("refused")
            return real(there, path, *args, **more)

        failing.setattr(BucketStore, "write", refuse)
        assert "refused" in Publisher(store, JobFolder(sandbox), wanted).upload(live_only=True)
    assert {"out/ckpt/1/_COMPLETE", "out/ckpt/1/weights"} <= set(keys(store))
    assert Publisher(store, JobFolder(sandbox), wanted).upload(live_only=False) == ""
    assert set(keys(store)) == {"out/ckpt/2/_COMPLETE", "out/ckpt/2/weights"}


def test_what_cannot_be_saved_is_named_and_the_rest_is_saved(
    publisher: Publisher, store: ObjectStore, sandbox: Sandbox
) -> None:
    folder = sandbox.output_dir("model")
    (folder / "good.pt").write_text("1")
    (folder / "secret").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    problems = publisher.upload(live_only=False)
    assert "secret" in problems
    assert "pipe" in problems
    assert set(keys(store)) == {"out/model/good.pt"}


@pytest.mark.parametrize("planted", ["link", "folder link", "pipe"])
def test_what_is_swapped_while_it_is_published_is_not_read(
    store: ObjectStore, sandbox: Sandbox, tmp_path: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "w.bin").write_text("not yours")
    wanted = request(OutputChannels=[{"Name": "model", "OutputUri": "oss://data/out/"}])
    sandbox.create(wanted)
    folder = sandbox.output_dir("model") / "deep"
    folder.mkdir()
    (folder / "w.bin").write_text("mine")

    as_ever = LocalStore.list

    def list_then_swap(self: LocalStore, **options: Any) -> Iterator[StoredFile]:
        listing = list(as_ever(self, **options))
        if options.get("folders"):  # whether there is anything; the listing of the transfer follows
            return iter(listing)
        (folder / "w.bin").unlink()
        if planted == "link":
            (folder / "w.bin").symlink_to(tmp_path / "secret" / "w.bin")
        elif planted == "pipe":
            os.mkfifo(folder / "w.bin")
        else:
            folder.rmdir()
            folder.symlink_to(tmp_path / "secret")
        return iter(listing)

    monkeypatch.setattr(LocalStore, "list", list_then_swap)
    problems = Publisher(store, JobFolder(sandbox), wanted).upload(live_only=False)
    assert "no longer a file of this folder" in problems
    assert keys(store) == {}


_PART = st.sampled_from(["..", ".", "", "a", "b c", "/", "\\", "etc", "link", "é", "-x", "\n", "a" * 300])


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(parts=st.lists(_PART, min_size=1, max_size=5), channel=st.text(max_size=8))
def test_no_name_writes_outside_of_the_job(store: ObjectStore, parts: list[str], channel: str) -> None:
    key = "fuzz/" + "/".join(parts)
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder)
        (outside / "other").write_text("untouched")
        sandbox = Sandbox(outside / "jobs" / "train1")
        with suppress(StorageError):
            store.put_bytes("data", key, b"x")
        with suppress(StagingFailed):
            body = request(InputChannels=[{"Name": channel, "InputUri": "oss://data/fuzz/"}])
            publish_file(store, sandbox, body)
        with suppress(StorageError):
            store.delete("data", key)
        found = {path for path in outside.rglob("*") if not path.is_relative_to(sandbox.root)}
        assert found <= {outside / "other", outside / "jobs"}
        assert (outside / "other").read_text() == "untouched"


def test_executable_files_stay_executable(store: ObjectStore, sandbox: Sandbox) -> None:
    with store.writer() as writer:
        writer.write(b"#!/bin/sh\n")
        store.finish(writer, "data", "code/run.sh", headers={"x-oss-meta-pai-executable": "true"})
    publish_file(store, sandbox, request(CodeDir=code("code/")))
    assert os.access(sandbox.usercode / "run.sh", os.X_OK)
    assert not os.access(sandbox.usercode / "train.py", os.X_OK)


def test_what_a_job_makes_executable_is_so_for_the_next_one(
    publisher: Publisher, store: ObjectStore, sandbox: Sandbox, tmp_path: Path
) -> None:
    for name, mode in (("run.sh", 0o755), ("m.pt", 0o644)):
        (sandbox.output_dir("model") / name).touch(mode)
    assert publisher.upload(live_only=False) == ""
    following = Sandbox(tmp_path / "next")
    publish_file(store, following, request(InputChannels=[{"Name": "m", "InputUri": "oss://data/out/model/"}]))
    assert os.access(following.input_dir("m") / "run.sh", os.X_OK)
    assert (following.input_dir("m") / "m.pt").stat().st_mode & 0o111 == 0


def test_a_large_file_is_not_copied_to_its_end_for_a_job_that_was_stopped(
    store: ObjectStore, sandbox: Sandbox
) -> None:
    store.put_bytes("data", "big/one.bin", bytes(8 << 20))
    asked = iter([False] * 3)
    with pytest.raises(StagingCancelled):
        ServiceStaging(
            store, JobFolder(sandbox), request(CodeDir=code("big/")), is_cancelled=lambda: next(asked, True)
        ).fill()
    assert list(sandbox.usercode.iterdir()) == []


def test_a_link_that_names_the_output_as_the_job_saw_it_is_published(store: ObjectStore, sandbox: Sandbox) -> None:
    wanted = request(OutputChannels=[{"Name": "model", "OutputUri": "oss://data/out/"}])
    sandbox.create(wanted)
    folder = sandbox.output_dir("model")
    (folder / "step 1").mkdir()
    (folder / "step 1" / "w.bin").write_text("w")
    (folder / "latest").symlink_to("/ml/output/model/step 1")
    (folder / "out").symlink_to("/ml/output/model/../../../secret")
    problems = Publisher(store, JobFolder(sandbox), wanted).upload(live_only=False)
    assert "out is a link" in problems
    assert "latest" not in problems
    assert [info.key for info in store.list("data", "out/")] == ["out/latest/w.bin", "out/step 1/w.bin"]


def test_publishing_ends_with_the_service(store: ObjectStore, sandbox: Sandbox) -> None:
    wanted = request(OutputChannels=[{"Name": "model", "OutputUri": "oss://data/out/"}])
    sandbox.create(wanted)
    for number in range(200):
        (sandbox.output_dir("model") / str(number)).write_text("x")

    def is_cancelled() -> bool:
        return len(keys(store)) >= 2

    with pytest.raises(UploadCancelled):
        Publisher(store, JobFolder(sandbox), wanted, is_cancelled=is_cancelled).upload(live_only=False)
    assert 2 <= len(keys(store)) < 100


def test_a_service_that_ends_does_not_wait_for_a_large_output(
    store: ObjectStore, sandbox: Sandbox, tmp_path: Path
) -> None:
    wanted = request(OutputChannels=[{"Name": "model", "OutputUri": "oss://data/out/"}])
    sandbox.create(wanted)
    (sandbox.output_dir("model") / "w.bin").write_bytes(bytes(8 << 20))
    incoming = tmp_path / "objects" / "incoming"
    begun: list[int] = []

    def is_cancelled() -> bool:
        begun.extend(draft.stat().st_size for draft in incoming.iterdir())
        return bool(begun)

    with pytest.raises(UploadCancelled):
        Publisher(store, JobFolder(sandbox), wanted, is_cancelled=is_cancelled).upload(live_only=False)
    assert 0 < begun[0] < 8 << 20
    assert not list(incoming.iterdir())
    assert keys(store) == {}


@pytest.mark.parametrize("damage", ["cut", "emptied", "gone", "changed"])
def test_a_job_does_not_begin_with_content_that_is_not_what_was_stored(
    store: ObjectStore, sandbox: Sandbox, damage: str
) -> None:
    store.put_bytes("data", "in/x.csv", b"x" * LARGE)  # a file, not a row
    blob = store.path_of_blob(store.head("data", "in/x.csv").blob)
    if damage == "gone":
        blob.unlink()
    elif damage == "changed":
        blob.write_bytes(b"y" * LARGE)
    else:
        os.truncate(blob, 0 if damage == "emptied" else 3)
    wanted = request(CodeDir=code("code/"), InputChannels=inputs("oss://data/in/"))
    with pytest.raises(
        StagingFailed, match=r"^input channel 'in0': oss://data/in/x\.csv .*upload it again"
    ) as caught:
        publish_file(store, sandbox, wanted)
    assert caught.value.reason_code == "ObjectDamaged"
