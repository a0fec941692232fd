"""RunStore: the paths, files, local folders and syncs of every kind of store; each known bug is a test."""

from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.run.report.checkpoints import CheckpointConfig, commit, rotate
from pai_sdk._data.run.store.remote_run import _FolderSync
from pai_sdk._data.run.store.run_store import DbfsRunStore, HdfsRunStore, LocalRunStore, RemoteRunStore, RunStore
from pai_sdk._data.run.store.stored_checkpoints import complete_checkpoints
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.sync.dir_sync import DirSync, SyncReport
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, StorageError, SyncError
from tests.support.fake_oss import FakeOss
from tests.support.messages import refused
from tests.unit.data.storage.conftest import BUCKET, client, oss, retry
from tests.unit.data.storage.stores.flaky_files import Flaky, FlakyObjects
from tests.unit.data.storage.stores.webhdfs_server import Asked, RemoteException, WebHdfs

__all__ = ["client", "oss", "retry"]

KINDS = ("local", "memory", "webhdfs", "oss")


class SessionOf:
    """A session as far as a store needs it."""

    def __init__(self, client: OssClient) -> None:
        self._client = client

    def files(self) -> OssClient:
        return self._client


@pytest.fixture
def hdfs() -> Iterator[WebHdfs]:
    server = WebHdfs()
    yield server
    server.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RunStore:
    if request.param == "local":
        return RunStore.create(tmp_path / "my store")
    if request.param == "memory":
        return RunStore.create(f"memory://{uuid.uuid4().hex}/team")
    if request.param == "webhdfs":
        port = request.getfixturevalue("hdfs").port
        return RunStore.create(f"hdfs://127.0.0.1:{port}/user/team", driver="webhdfs")
    monkeypatch = request.getfixturevalue("monkeypatch")
    session = SessionOf(request.getfixturevalue("client"))
    # A store that was pickled uses the default session.
    monkeypatch.setattr("pai_sdk._data.storage.store.session_or_default", lambda given: given or session)
    return RunStore.create(f"oss://{BUCKET}/team")


def write(folder: str | Path, **files: str) -> None:
    for name, text in files.items():
        path = Path(folder, *name.split("__"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


# ---- which store a prefix makes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "kind", "full"),
    [
        ("/data/team", LocalRunStore, "file:///data/team"),
        ("/data/team/", LocalRunStore, "file:///data/team"),
        ("file:///data/team", LocalRunStore, "file:///data/team"),
        ("file:/data/my%20team", LocalRunStore, "file:///data/my%20team"),
        ("/data/my team", LocalRunStore, "file:///data/my%20team"),
        ("oss://models/team/", RemoteRunStore, "oss://models/team"),
        (
            "oss://models.oss-cn-hangzhou.aliyuncs.com/x",
            RemoteRunStore,
            "oss://models.oss-cn-hangzhou.aliyuncs.com/x",
        ),
        ("s3://bucket/team", RemoteRunStore, "s3://bucket/team"),
        ("memory://team", RemoteRunStore, "memory://team"),
        ("webhdfs://host:9870/team", RemoteRunStore, "webhdfs://host:9870/team"),
        ("hdfs://namenode:8020/user/team", HdfsRunStore, "hdfs://namenode:8020/user/team"),
        ("hdfs:///user/team", HdfsRunStore, "hdfs:///user/team"),
        ("dbfs:/team", DbfsRunStore, "file:///dbfs/team"),
    ],
)
def test_a_prefix_makes_its_kind_of_store(prefix: str, kind: type[RunStore], full: str) -> None:
    """STO-01, STO-B1: no store needs what pyarrow has removed, and none connects when it is made."""
    store = RunStore.create(prefix)
    assert type(store) is kind
    assert store.prefix_path == full
    assert store.get_runs_path() == f"{full}/runs"


def test_a_relative_prefix_becomes_an_absolute_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STO-B12: a relative prefix became `file://foo`, whose host is foo."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert RunStore.create("foo").prefix_path == (tmp_path / "here" / "foo").as_uri()
    assert RunStore.create("../foo").prefix_path == (tmp_path / "foo").as_uri()


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """STO-B12"""
    HdfsRunStore("/user/team", host="namenode").get_run_path("r1")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", ["dbfs:/a/b", "/dbfs/a/b", "file:///dbfs/a/b", "file:/dbfs/a/b"])
def test_the_forms_of_dbfs(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """STO-13"""
    assert not isinstance(RunStore.create("/dbfs/a/b"), DbfsRunStore)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
    store = RunStore.create(path)
    assert isinstance(store, DbfsRunStore)
    assert DbfsRunStore.normalize_path(path) == store.get_localized_path(path) == "/dbfs/a/b"
    assert store.get_full_path(path) == store.prefix_path == "file:///dbfs/a/b"
    assert store.get_checkpoint_filename() == "checkpoint.tf"


@pytest.mark.parametrize("path", ["dbfs://a/b", "/data/a", "s3://dbfs/a", "dbfs", "/dbfs/../etc"])
def test_what_is_not_dbfs(path: str) -> None:
    with refused(ValueError, "path"):
        DbfsRunStore(path)


def test_dbfs_is_read_through_its_mount(tmp_path: Path) -> None:
    store = DbfsRunStore("dbfs:/team", mount=str(tmp_path))
    store.write_text("dbfs:/team/note", "hello")
    assert (tmp_path / "team" / "note").read_text() == "hello"
    assert store.read("/dbfs/team/note") == store.read("file:///dbfs/team/note") == b"hello"
    assert list(store.list()) == ["file:///dbfs/team/note"]
    with store.local_dir("r1") as folder:
        assert folder == str(tmp_path / "team" / "runs" / "r1")


def test_a_path_that_goes_with_the_cluster_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """STO-13"""
    RunStore.create(tmp_path)
    assert not caplog.records
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
    RunStore.create("dbfs:/team")
    assert not caplog.records
    RunStore.create(tmp_path)
    assert "dbfs:/" in caplog.text


# ---- HDFS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "given", "expected"),
    [
        ("hdfs://nn:9000/x", {}, {"host": "nn", "port": 9000}),
        ("hdfs://nn/x", {}, {"host": "nn", "port": 0}),
        ("hdfs:///x", {}, {"host": "default", "port": 0}),
        ("/x", {}, {"host": "default", "port": 0}),
        ("hdfs://nn:9000/x", {"host": "other", "port": 1}, {"host": "other", "port": 1}),
        ("/x", {"host": "nn", "port": 9000}, {"host": "nn", "port": 9000}),
        ("hdfs://alice@nn:9000/x", {}, {"host": "nn", "port": 9000, "user": "alice"}),
        ("hdfs://alice@nn/x", {"user": "bob"}, {"host": "nn", "port": 0, "user": "bob"}),
        ("hdfs://[::1]:9000/x", {}, {"host": "::1", "port": 9000}),
        (
            "/x",
            {"kerb_ticket": "/tmp/t", "extra_conf": {"dfs.replication": "1"}},
            {"host": "default", "port": 0, "kerb_ticket": "/tmp/t", "extra_conf": {"dfs.replication": "1"}},
        ),
    ],
)
def test_the_namenode(prefix: str, given: dict[str, Any], expected: dict[str, Any]) -> None:
    """STO-12, STO-B12: an address in brackets had the host `[`; a user was part of the host."""
    store = HdfsRunStore(prefix, **given)
    assert store._for_fsspec(store.prefix_path) == ("hdfs:///x", expected)


def test_arguments_in_the_order_of_the_original() -> None:
    store = HdfsRunStore(
        "/x", "nn", 9000, "alice", None, "libhdfs", None, "/train", "/val", "/test", "/runs", False
    )
    assert store.get_train_data_path() == "hdfs:///train"
    assert store.get_runs_path() == "hdfs:///runs"
    assert not store.saving_runs()
    local = LocalRunStore("/x", "/train", "/val", "/test", "/runs", False)
    assert (local.get_val_data_path(), local.get_test_data_path(1)) == ("file:///val", "file:///test.1")


@pytest.mark.parametrize("prefix", ["s3://bucket/x", "file:///x", "webhdfs://h:1/x"])
def test_another_scheme_is_not_hdfs(prefix: str) -> None:
    with refused(ValueError, "path"):
        HdfsRunStore(prefix)


@pytest.mark.parametrize("prefix", ["hdfs://nn:9000", "hdfs://", "x", ""])
def test_a_prefix_without_a_path_is_not_hdfs(prefix: str) -> None:
    with refused(ValueError, "path"):
        HdfsRunStore(prefix)


def test_what_webhdfs_cannot_use_is_refused_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        HdfsRunStore("/x", driver="webhdfs", extra_conf={"a": "b"})
    assert [problem.where for problem in caught.value.problems] == ["extra_conf", "host"]
    with refused(InvalidInputError, "driver"):
        HdfsRunStore("/x", host="nn", driver="carrier pigeon")
    with refused(InvalidInputError, "path"):
        HdfsRunStore("hdfs://nn:port/x")


def test_the_user_and_the_port_of_webhdfs(hdfs: WebHdfs) -> None:
    HdfsRunStore("/x", "127.0.0.1", hdfs.port, "alice", driver="webhdfs").write_text("/x/a", "1")
    assert {asked.query.get("user.name") for asked in hdfs.asked if not asked.of_datanode} == {"alice"}
    uri, options = HdfsRunStore("hdfs://nn/x", driver="webhdfs")._for_fsspec("/x/runs")
    assert (uri, options) == ("webhdfs:///x/runs", {"host": "nn", "port": 9870})


# ---- paths --------------------------------------------------------------------------------------------------


def test_paths_below_the_prefix() -> None:
    """STO-02 to STO-05"""
    store = RunStore.create("hdfs://nn:9000/team")
    base = "hdfs://nn:9000/team"
    assert store.get_train_data_path() == f"{base}/intermediate_train_data"
    assert store.get_val_data_path(0) == f"{base}/intermediate_val_data.0"
    assert store.get_test_data_path(12) == f"{base}/intermediate_test_data.12"
    assert store.get_run_path("r1") == store.layout("r1").folder == f"{base}/runs/r1"
    assert store.get_checkpoint_path("r1") == f"{base}/runs/r1/checkpoint.h5"
    assert store.get_logs_path("r1") == f"{base}/runs/r1/logs"
    assert (store.get_checkpoint_filename(), store.get_logs_subdir()) == ("checkpoint.h5", "logs")
    assert store.saving_runs()


def test_explicit_paths_are_made_full() -> None:
    """STO-02"""
    store = RunStore.create("hdfs://nn:9000/team", runs_path="/runs/", train_path="hdfs://nn:9000/train")
    assert store.get_run_path("r1") == "hdfs://nn:9000/runs/r1"
    assert store.get_train_data_path(1) == "hdfs://nn:9000/train.1"


def test_without_saved_runs_the_paths_are_none() -> None:
    """STO-04, STO-B13"""
    store = RunStore.create("memory://x", save_runs=False, checkpoint_filename="model.pt")
    assert not store.saving_runs()
    assert store.get_checkpoint_path("r1") is None
    assert store.get_logs_path("r1") is None
    assert store.get_run_path("r1") == "memory://x/runs/r1"
    with refused(InvalidInputError, "save_runs"):
        store.get_checkpoints("r1")
    saving = RunStore.create("memory://x", checkpoint_filename="model.pt")
    assert saving.get_checkpoint_path("r1") == "memory://x/runs/r1/model.pt"


@pytest.mark.parametrize("run_id", ["/etc", "../../x", "..", "a/b", ""])
def test_a_run_is_always_in_the_folder_of_runs(store: RunStore, run_id: str) -> None:
    """STO-B5"""
    for method in (
        store.get_run_path,
        store.get_checkpoint_path,
        store.get_logs_path,
        store.local_dir,
        store.get_local_output_dir_fn,
        store.sync_fn,
        store.to_remote,
    ):
        with refused(InvalidInputError, "run_id"):
            method(run_id)


@pytest.mark.parametrize(
    ("prefix", "path", "full", "localized"),
    [
        ("/data", "/data/x", "file:///data/x", "/data/x"),
        ("/data", "file:///data/a%20b", "file:///data/a%20b", "/data/a b"),
        ("/data", "/data/100%/a?b#c", "file:///data/100%25/a%3Fb%23c", "/data/100%/a?b#c"),
        ("hdfs://nn:9000/data", "/x/y", "hdfs://nn:9000/x/y", "/x/y"),
        ("hdfs://nn:9000/data", "hdfs://nn:9000/x/a?b#c", "hdfs://nn:9000/x/a?b#c", "/x/a?b#c"),
        ("hdfs:///data", "hdfs:///x", "hdfs:///x", "/x"),
        ("hdfs://[::1]:9000/data", "hdfs://[::1]:9000/x", "hdfs://[::1]:9000/x", "/x"),
        ("oss://b/data", "oss://b/x y", "oss://b/x y", "b/x y"),
        ("oss://b/data", "b/x", "oss://b/x", "b/x"),
        ("memory://data", "/data/x", "memory://data/x", "/data/x"),
        ("webhdfs://h:1/data", "/x", "webhdfs://h:1/x", "/x"),
    ],
)
def test_full_and_localized_paths(prefix: str, path: str, full: str, localized: str) -> None:
    """STO-07"""
    store = RunStore.create(prefix)
    assert store.get_full_path(path) == store.get_full_path(store.get_full_path(path)) == full
    assert store.get_localized_path(path) == localized
    assert store.get_localized_path(full) == localized
    assert store.get_full_path(localized) == full
    assert pickle.loads(pickle.dumps(store.get_full_path_fn()))(path) == full


@pytest.mark.parametrize(
    ("prefix", "path"),
    [
        ("hdfs://nn:9000/data", "hdfs://other:9000/data/x"),
        ("hdfs://nn:9000/data", "hdfs:///data/x"),
        ("hdfs://nn:9000/data", "s3://nn:9000/data/x"),
        ("hdfs:///data", "hdfs://other:9000/data/x"),
        ("/data", "file://other/data/x"),
        ("/data", "hdfs://other/data/x"),
        ("s3://bucket/data", "oss://bucket/data"),
        ("webhdfs://h:1/data", "webhdfs://h:2/data"),
        ("/data", "/data/../etc"),
        ("/data", "file:///data/%2e%2e/etc"),
        ("hdfs:///data", "/data/../etc"),
        ("s3://bucket/data", "s3://bucket/data/../x"),
        ("memory://x", ""),
    ],
)
def test_paths_of_another_place_are_errors(prefix: str, path: str) -> None:
    """STO-B4: another host was cut off together with the beginning of the path."""
    store = RunStore.create(prefix)
    for method in (store.get_localized_path, store.get_full_path, store.exists, store.read):
        with pytest.raises(InvalidInputError):
            method(path)
    with pytest.raises(InvalidInputError):
        RunStore.create(prefix, runs_path=path)


def test_the_namenode_may_have_the_name_of_the_arguments() -> None:
    store = HdfsRunStore("/data", host="nn", port=9000)
    assert (
        store.get_localized_path("hdfs://nn:9000/data/x")
        == store.get_localized_path("hdfs:///data/x")
        == "/data/x"
    )


# ---- files --------------------------------------------------------------------------------------------------


def test_files(store: RunStore) -> None:
    """STO-06: both forms of a path."""
    note = f"{store.get_run_path('r1')}/note.txt"
    assert not store.exists(note)
    with pytest.raises(ObjectNotFoundError):
        store.read(note)
    store.write_text(note, "héllo")
    for path in (note, store.get_localized_path(note)):
        assert store.exists(path)
        assert store.read(path) == "héllo".encode()
    store.write_text(note, "other")
    assert store.read(note) == b"other"
    assert store.exists(store.get_run_path("r1"))
    assert store.exists(f"{store.get_run_path('r1')}/")
    assert store.exists(store.prefix_path)
    assert not store.exists(store.get_run_path("r"))
    store.write_text(f"{store.get_runs_path()}/r0/x", "")
    assert list(store.list()) == [f"{store.get_runs_path()}/r0/x", note]
    assert list(store.list(store.get_run_path("r1"))) == [note]
    assert list(store.list(store.get_run_path("r2"))) == []


def test_files_outside_of_the_prefix(store: RunStore, tmp_path: Path) -> None:
    base = store.prefix_path.rpartition("/")[0]
    store.write_text(f"{base}/other/x", "1")
    assert store.read(f"{base}/other/x") == b"1"
    assert store.exists(f"{base}/other")
    assert not store.exists(f"{base}/missing")
    assert list(store.list(f"{base}/other")) == [f"{base}/other/x"]


def test_an_empty_folder_exists_on_a_disk(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path)
    with store.local_dir("r1"):
        assert store.exists(store.get_run_path("r1"))


def test_checkpoints_are_sorted(store: RunStore) -> None:
    """STO-05"""
    for name in ("b.ckpt", "a.ckpt", "note.txt", "deep/c.ckpt"):
        store.write_text(f"{store.get_run_path('r1')}/{name}", "")
    run = store.get_run_path("r1")
    assert store.get_checkpoints("r1") == [f"{run}/a.ckpt", f"{run}/b.ckpt", f"{run}/deep/c.ckpt"]
    assert store.get_checkpoints("r1", suffix=".txt") == [f"{run}/note.txt"]
    assert store.get_checkpoints("r2") == []


def test_metadata_is_json_beside_the_data(store: RunStore) -> None:
    """STO-08, STO-B11: a shared pickle would run code of its writer."""
    data = store.get_train_data_path(3)
    assert store.get_data_metadata_path(f"{data}/") == f"{store.get_localized_path(data)}_cached_metadata.json"
    assert store.read_metadata(data) is None
    store.write_metadata(data, {"rows": 7, "name": "ä"})
    assert store.read_metadata(f"{data}/") == {"rows": 7, "name": "ä"}
    assert json.loads(store.read(store.get_data_metadata_path(data)))["rows"] == 7


def test_a_damaged_cache_is_none_and_runs_nothing(tmp_path: Path) -> None:
    """STO-B11"""

    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    store = RunStore.create(tmp_path / "store")
    data = store.get_train_data_path()
    for content in (pickle.dumps(Bomb()).decode("latin-1"), "{", "[1]"):
        store.write_text(store.get_data_metadata_path(data), content)
        assert store.read_metadata(data) is None
    assert not (tmp_path / "ran").exists()


def test_parquet(store: RunStore, tmp_path: Path) -> None:
    """STO-08"""
    data = store.get_train_data_path()
    assert store.is_parquet_dataset(data) is False
    table = pyarrow.table({"x": [1, 2, 3]})
    pyarrow.parquet.write_table(table, tmp_path / "part.parquet")
    base = tmp_path / "made"
    write(base, _SUCCESS="")
    store_of = store._open(data)
    store_of.write("part-0.parquet", tmp_path / "part.parquet")
    store_of.write("deep/part-1.parquet", tmp_path / "part.parquet")
    assert store.is_parquet_dataset(data) is True
    assert store.is_parquet_dataset(store.get_localized_path(data)) is True
    assert store.get_parquet_dataset(data).read().to_pydict() == {"x": [1, 2, 3, 1, 2, 3]}
    store.write_text(f"{store.get_val_data_path()}/readme.txt", "not parquet")
    assert store.is_parquet_dataset(store.get_val_data_path()) is False


def test_parquet_does_not_hide_a_refusal(hdfs: WebHdfs) -> None:
    """STO-B10"""
    store = RunStore.create(f"hdfs://127.0.0.1:{hdfs.port}/team", driver="webhdfs")
    store.write_text(store.get_train_data_path() + "/x.parquet", "")
    hdfs.forbidden.add("dr.who")
    with pytest.raises((OSError, StorageError), match="Permission denied"):
        store.is_parquet_dataset(store.get_train_data_path())


@pytest.mark.parametrize("kind", [Flaky, FlakyObjects])
def test_parquet_where_paths_are_reported_with_another_slash(kind: type[Flaky], tmp_path: Path) -> None:
    kind.clear()
    scheme = kind.protocol if isinstance(kind.protocol, str) else kind.protocol[0]
    store = RunStore.create(f"{scheme}://b/team")
    data = store.get_train_data_path()
    table = pyarrow.table({"x": [1, 2, 3]})
    for name in ("day=1/part-0.parquet", "day=2/part-0.parquet"):
        pyarrow.parquet.write_table(table, tmp_path / "part.parquet")
        store._open(data).write(name, tmp_path / "part.parquet")
    assert store.is_parquet_dataset(data) is True
    assert store.is_parquet_dataset(f"{data}/day=1/part-0.parquet") is True
    assert store.is_parquet_dataset(store.get_localized_path(data)) is True
    assert store.is_parquet_dataset(f"{data}/nothing") is False
    found = store.get_parquet_dataset(data).read().to_pydict()
    assert (found["x"], [str(day) for day in found["day"]]) == ([1, 2, 3] * 2, ["1"] * 3 + ["2"] * 3)


@pytest.mark.parametrize("method", ["ls", "info"])
@pytest.mark.parametrize("end", ["/intermediate_train_data", "/deep"])
def test_parquet_does_not_hide_a_refused_listing(tmp_path: Path, method: str, end: str) -> None:
    Flaky.clear()
    store = RunStore.create("flaky://b/team")
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "part.parquet")
    store._open(store.get_train_data_path()).write("deep/part-0.parquet", tmp_path / "part.parquet")
    path = store.get_train_data_path() + ("" if end != "/deep" else "/deep")
    Flaky.errors = {(method, end): [PermissionError(13, "Forbidden") for _ in range(20)]}
    with refused(StorageError):
        store.is_parquet_dataset(path)
    if method == "ls":
        with refused(StorageError):
            store.is_parquet_dataset(store.get_train_data_path())


def test_parquet_does_not_hide_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """STO-B10"""

    def interrupted(self: RunStore, path: str) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunStore, "get_parquet_dataset", interrupted)
    with pytest.raises(KeyboardInterrupt):
        RunStore.create("memory://x").is_parquet_dataset("memory://x/y")


def test_a_model_is_read_as_base64(store: RunStore) -> None:
    """STO-14"""
    store.write_text(f"{store.prefix_path}/m.h5", "model")
    assert store.read_serialized_keras_model(f"{store.prefix_path}/m.h5", None, {}) == "bW9kZWw="


# ---- a run on local disk ------------------------------------------------------------------------------------


def test_on_a_disk_the_local_folder_is_the_runs_own(tmp_path: Path) -> None:
    """STO-09"""
    store = RunStore.create(tmp_path / "store")
    old = os.umask(0)
    try:
        for make in (lambda: store.local_dir("r1"), store.get_local_output_dir_fn("r1")):
            with make() as folder, make() as again:
                assert folder == again == store.get_localized_path(store.get_run_path("r1"))
                assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o755
    finally:
        os.umask(old)
    write(folder, a="1")
    assert store.read(f"{store.get_run_path('r1')}/a") == b"1"


def test_on_a_disk_there_is_nothing_to_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STO-10, STO-B14: `a/`, `./a` and a link are the same folder."""
    store = RunStore.create(tmp_path / "store")
    with store.local_dir("r1") as folder:
        (tmp_path / "link").symlink_to(folder)
        monkeypatch.chdir(Path(folder).parent)
        for form in (folder, f"{folder}/", "./r1", "r1", str(tmp_path / "link"), Path(folder)):
            assert store.sync("r1", form) is None  # type: ignore[func-returns-value]
        store.sync_fn("r1")(folder)
        with refused(InvalidInputError, "local_dir"):
            store.sync("r1", tmp_path)


# ---- a run elsewhere ----------------------------------------------------------------------------------------

REMOTE = [kind for kind in KINDS if kind != "local"]


@pytest.mark.parametrize("store", REMOTE, indirect=True)
def test_elsewhere_the_local_folder_is_temporary(store: RunStore, tmp_path: Path) -> None:
    """STO-09"""
    (tmp_path / "temp").mkdir()
    store._temp_dir = str(tmp_path / "temp")
    for make in (lambda: store.local_dir("r1"), pickle.loads(pickle.dumps(store.get_local_output_dir_fn("r1")))):
        with make() as folder:
            assert Path(folder).parent == tmp_path / "temp"
        with pytest.raises(ZeroDivisionError), make() as folder:
            write(folder, deep__a=str(1 / 0))
        assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.parametrize("store", REMOTE, indirect=True)
def test_a_sync_sends_what_is_new_or_changed(store: RunStore) -> None:
    """STO-10, and STO-B2: with a slash at the end, each path lost its first letter."""
    run = store.get_run_path("r1")
    with store.local_dir("r1") as folder:
        sync = store.sync_fn("r1")
        write(folder, a="1", sub__b="2", sub__deep__c="3")
        assert _moved(sync(f"{folder}/")) == 3
        assert sorted(store.list(run)) == [f"{run}/a", f"{run}/sub/b", f"{run}/sub/deep/c"]
        assert _moved(sync(folder)) == 0
        write(folder, a="11", sub__b="22")
        assert _moved(sync(folder)) == 2
        assert [store.read(f"{run}/{name}") for name in ("a", "sub/b", "sub/deep/c")] == [b"11", b"22", b"3"]


@pytest.mark.parametrize("store", REMOTE, indirect=True)
def test_a_change_within_a_second_and_an_older_file_are_sent(store: RunStore) -> None:
    """STO-B3"""
    run = store.get_run_path("r1")
    with store.local_dir("r1") as folder:
        path = Path(folder, "a")
        path.write_text("1")
        os.utime(path, ns=(10**18, 10**18))
        store.sync("r1", folder)
        path.write_text("2")
        os.utime(path, ns=(10**18 + 1, 10**18 + 1))
        store.sync("r1", folder)
        assert store.read(f"{run}/a") == b"2"
        Path(folder, "new").write_text("3")
        os.utime(Path(folder, "new"), ns=(5, 5))
        Path(folder, "new").replace(path)
        store.sync("r1", folder)
        assert store.read(f"{run}/a") == b"3"


@pytest.mark.parametrize("store", REMOTE, indirect=True)
def test_deletions_are_sent_only_when_asked(store: RunStore) -> None:
    """STO-B7"""
    run = store.get_run_path("r1")
    with store.local_dir("r1") as folder:
        write(folder, a="1", old="2")
        store.sync("r1", folder)
        Path(folder, "old").unlink()
        store.sync("r1", folder)
        assert store.exists(f"{run}/old")
        report = store.sync("r1", folder, delete=True)
        assert report is not None
        assert report.deleted == 1
        assert list(store.list(run)) == [f"{run}/a"]


@pytest.mark.parametrize("store", REMOTE, indirect=True)
def test_a_log_that_grows_never_fails_a_sync(store: RunStore) -> None:
    over = threading.Event()
    with store.local_dir("r1") as folder:
        log, run = Path(folder, "train.log"), store.get_run_path("r1")
        write(folder, weights="1")

        def train() -> None:
            while not over.wait(0.01):
                with log.open("a") as out:
                    out.write("another line\n")

        log.touch()
        thread = threading.Thread(target=train)
        thread.start()
        try:
            for _ in range(8):
                store.sync("r1", folder)
                assert log.read_bytes().startswith(store.read(f"{run}/train.log"))
        finally:
            over.set()
            thread.join()
        report = store.sync("r1", folder)
        assert report is not None
        assert report.grown == []
        assert store.read(f"{run}/train.log") == log.read_bytes()
        assert store.read(f"{run}/weights") == b"1"


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    """STO-B7"""
    store = RunStore.create(f"memory://{uuid.uuid4().hex}")
    write(tmp_path / "elsewhere", x="1")
    with store.local_dir("r1") as folder:
        Path(folder, "link").symlink_to(tmp_path / "elsewhere")
        store.sync("r1", folder)
    assert store.read(f"{store.get_run_path('r1')}/link/x") == b"1"


def test_a_file_that_fails_does_not_stop_the_others(hdfs: WebHdfs) -> None:
    """STO-B6"""
    store = RunStore.create(f"hdfs://127.0.0.1:{hdfs.port}/team", driver="webhdfs")
    run = store.get_run_path("r1")

    def fail(asked: Asked) -> None:
        if asked.op == "RENAME" and asked.query["destination"].endswith(("/b", "/d")):
            raise RemoteException(403, "AccessControlException", "Permission denied")

    hdfs.before = fail
    with store.local_dir("r1") as folder:
        write(folder, a="1", b="2", c="3", d="4")
        with pytest.raises(SyncError) as caught:
            store.sync("r1", folder)
        assert set(caught.value.failures) == {"b", "d"}
        assert list(store.list(run)) == [f"{run}/a", f"{run}/c"]
        hdfs.before = lambda asked: None
        assert _moved(store.sync("r1", folder)) == 2  # those that failed, and no other


# ---- in another process -------------------------------------------------------------------------------------

PUBLIC = {
    "train_data_path",
    "val_data_path",
    "test_data_path",
    "saving_runs",
    "runs_path",
    "run_path",
    "checkpoint_path",
    "logs_path",
    "checkpoint_filename",
    "logs_subdir",
    "get_local_output_dir",
    "sync",
}


def test_a_job_sees_exactly_these_names(store: RunStore) -> None:
    """STO-11, STO-B8: the class was local to a function, so pickle could not load it."""
    remote = pickle.loads(pickle.dumps(store.to_remote("r1", 2)))
    assert {name for name in dir(remote) if not name.startswith("_")} == PUBLIC
    assert remote.train_data_path == store.get_train_data_path(2)
    assert remote.val_data_path == store.get_val_data_path(2)
    assert remote.test_data_path == store.get_test_data_path(2)
    assert remote.checkpoint_path == store.get_checkpoint_path("r1")
    assert (remote.runs_path, remote.run_path) == (store.get_runs_path(), store.get_run_path("r1"))
    assert (remote.logs_path, remote.logs_subdir) == (store.get_logs_path("r1"), "logs")
    assert (remote.saving_runs, remote.checkpoint_filename) == (True, "checkpoint.h5")
    with remote.get_local_output_dir() as folder:
        write(folder, sub__a="1")
        remote.sync(folder)
    assert store.read(f"{remote.run_path}/sub/a") == b"1"


WITHOUT_PAI_SDK = """
import importlib.abc, pathlib, pickle, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pai_sdk":
            raise ImportError("pai_sdk is not installed here")

sys.meta_path.insert(0, Refuse())
remote = pickle.load(open(sys.argv[1], "rb"))
again = pickle.loads(pickle.dumps(remote))
with again.get_local_output_dir() as folder:
    folder = pathlib.Path(folder)
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub" / "up").symlink_to("..")
    (folder / "sub" / "a").write_text("1")
    again.sync(str(folder) + "/")
    (folder / "sub" / "a").write_text("2")
    again.sync(str(folder))
    (folder / "b").write_text("3")
    again.sync(str(folder))
print(again.run_path)
"""


def run_without_pai_sdk(remote: Any, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "remote.pickle").write_bytes(pickle.dumps(remote))
    program = [sys.executable, "-I", *flags, "-c", WITHOUT_PAI_SDK, str(folder / "remote.pickle")]
    return subprocess.run(program, cwd="/", capture_output=True, text=True, check=False, timeout=100)


def test_on_a_disk_a_job_needs_only_the_standard_library(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "store")
    done = run_without_pai_sdk(store.to_remote("r1"), tmp_path, "-S")
    assert (done.stdout.strip(), done.stderr) == (store.get_run_path("r1"), "")
    assert store.read(f"{store.get_run_path('r1')}/sub/a") == b"2"


def test_elsewhere_a_job_without_pai_sdk_sends_through_fsspec(hdfs: WebHdfs, tmp_path: Path) -> None:
    store = RunStore.create(f"hdfs://127.0.0.1:{hdfs.port}/team", driver="webhdfs")
    done = run_without_pai_sdk(store.to_remote("r1"), tmp_path)
    assert (done.stdout.strip(), done.stderr) == (store.get_run_path("r1"), "")
    assert hdfs.files() == {"/team/runs/r1/sub/a": b"2", "/team/runs/r1/b": b"3"}


def test_without_fsspec_the_error_says_what_to_install(tmp_path: Path) -> None:
    done = run_without_pai_sdk(RunStore.create("memory://x").to_remote("r1"), tmp_path, "-S")
    assert "install pai_sdk here, or fsspec" in done.stderr


def test_without_pai_sdk_a_file_that_fails_does_not_stop_the_others(
    hdfs: WebHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore.create(f"hdfs://127.0.0.1:{hdfs.port}/team", driver="webhdfs")
    remote = store.to_remote("r1")
    monkeypatch.setattr(type(remote), "_with_pai_sdk", lambda self: None)
    is_refusing = [True]

    def fail(asked: Asked) -> None:
        if is_refusing and asked.path.endswith("/b"):
            raise RemoteException(403, "AccessControlException", "Permission denied")

    hdfs.before = fail
    write(tmp_path / "out", a="1", b="2", c="3")
    with refused(OSError):
        remote.sync(str(tmp_path / "out"))
    assert sorted(hdfs.files()) == ["/team/runs/r1/a", "/team/runs/r1/c"]
    is_refusing.clear()
    remote.sync(str(tmp_path / "out"))
    assert sorted(hdfs.files()) == ["/team/runs/r1/a", "/team/runs/r1/b", "/team/runs/r1/c"]


def test_stores_are_plain_values(store: RunStore) -> None:
    copy = pickle.loads(pickle.dumps(store))
    store.write_text(f"{store.prefix_path}/x", "1")
    assert copy.read(f"{store.prefix_path}/x") == b"1"
    assert repr(copy) == repr(store) == f"<{type(store).__name__} {store.prefix_path}>"


def test_options_are_not_shown() -> None:
    assert "secret" not in repr(RunStore.create("s3://bucket/x", storage_options={"secret": "secret"}))


def test_the_base_class_says_how_to_make_a_store() -> None:
    with refused(NotImplementedError):
        RunStore("/data")


def _moved(report: Any) -> int:
    assert report is not None
    return int(report.moved)


@pytest.mark.parametrize("store", REMOTE, indirect=True)
def test_a_synced_checkpoint_is_complete_for_readers_only_as_a_whole(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STO-B9: a file that cannot be sent keeps its checkpoint from being complete."""
    real = DirSync.attempt

    def without_weights(sync: DirSync) -> SyncReport:
        skip = sync._skip
        sync._skip = lambda file: file.path.endswith("weights") or skip(file)
        report = real(sync)
        report.failures["checkpoints/1/weights"] = StorageError("refused")
        return report

    run = store.get_run_path("r1")
    with store.local_dir("r1") as folder:
        write(folder, checkpoints__1__weights="1.0", checkpoints__1__Adam="2.0")
        commit(Path(folder, "checkpoints", "1"), step=1)
        with monkeypatch.context() as failing:
            failing.setattr(DirSync, "attempt", without_weights)
            with pytest.raises(SyncError):
                store.sync("r1", folder)
        # The mark stays: if this process is lost now, another one knows that the folder is no user's own.
        assert sorted(store.list(run)) == [f"{run}/checkpoints/1/{name}" for name in ("Adam", "_INCOMPLETE")]
        store.sync("r1", folder)
        names = [path.rpartition("/")[2] for path in store.list(run)]
        assert names == ["Adam", "_COMPLETE", "weights"]


# ---- checkpoints of a run -----------------------------------------------------------------------------------


def save_step(folder: str, step: int, *, rank: int = 0) -> None:
    place = Path(folder, "checkpoints", *([f"rank-{rank}"] if rank else []), str(step))
    place.mkdir(parents=True)
    (place / "weights").write_text(f"{step}")
    commit(place, step=step)


def steps(store: RunStore) -> list[int]:
    return [found.step for found in complete_checkpoints(store._open(store.get_run_path("r1")), checksums=True)]


@pytest.mark.parametrize("store", REMOTE, indirect=True)
@pytest.mark.parametrize("delete", [False, True])
def test_rotated_checkpoints_are_removed(store: RunStore, delete: bool) -> None:
    with store.local_dir("r1") as folder:
        for step in range(4):
            save_step(folder, step)
            save_step(folder, step, rank=1)
            for part in ("checkpoints", "checkpoints/rank-1"):
                rotate(Path(folder, part), CheckpointConfig(num_to_keep=1))
            store.sync("r1", folder, delete=delete)
            assert steps(store) == [step]
    run = store.get_run_path("r1")
    assert [path.removeprefix(f"{run}/checkpoints/") for path in store.list(run)] == [
        "3/_COMPLETE",
        "3/weights",
        "rank-1/3/_COMPLETE",
        "rank-1/3/weights",
    ]


@pytest.mark.parametrize("store", REMOTE, indirect=True)
def test_a_new_folder_deletes_no_checkpoints_of_others(store: RunStore) -> None:
    run = store.get_run_path("r1")
    with store.local_dir("r1") as folder:
        save_step(folder, 5)
        write(folder, a="1", checkpoints__last="x")
        Path(folder, "checkpoint.h5").write_text("of Keras")
        store.sync("r1", folder)
    with store.local_dir("r1") as folder:
        write(folder, b="2")
        store.sync("r1", folder, delete=True)
        assert steps(store) == [5]
        kept = ["b", "checkpoint.h5", "checkpoints/5/_COMPLETE", "checkpoints/5/weights", "checkpoints/last"]
        assert [path.removeprefix(f"{run}/") for path in store.list(run)] == kept
        save_step(folder, 6)
        store.sync("r1", folder, delete=True)
        assert steps(store) == [6, 5]


@pytest.mark.parametrize("store", REMOTE, indirect=True)
def test_what_was_deleted_or_changed_in_the_store_is_sent_again(store: RunStore) -> None:
    run = store.get_run_path("r1")
    with store.local_dir("r1") as folder:
        save_step(folder, 1)
        write(folder, a="1", b="2")
        store.sync("r1", folder)
        there = store._open(run)
        there.delete(["a"])
        there.write("b", b"other")
        assert _moved(store.sync("r1", folder)) == 2
        assert (store.read(f"{run}/a"), store.read(f"{run}/b")) == (b"1", b"2")
        there.write("checkpoints/1/weights", b"!")
        store.sync("r1", folder)
        assert steps(store) == [1]
        there.delete([file.path for file in there.list()])
        assert _moved(store.sync("r1", folder)) == 4
        assert steps(store) == [1]
        assert _moved(store.sync("r1", folder)) == 0


def test_two_services_with_one_name_of_a_bucket_are_told_apart(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    second = FakeOss(BUCKET)
    try:
        with OssClient(second.endpoint, lambda: Credentials("key-id", "key-secret"), region="cn-test") as other:
            write(tmp_path, a="1")
            for each in (client, other):
                store = RemoteRunStore(f"oss://{BUCKET}/team", session=SessionOf(each))
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("pai_sdk._data.storage.store.session_or_default", lambda given: given)
                    assert _moved(store.sync("r1", tmp_path)) == 1
                    assert store.exists(f"{store.get_run_path('r1')}/a")
                    oss.seen.clear()
                    assert _moved(store.sync("r1", tmp_path)) == 0
            assert len(oss.seen) == 0
    finally:
        second.close()


def test_a_sync_without_changes_costs_one_request(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    write(tmp_path, a="1")
    save_step(str(tmp_path), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pai_sdk._data.storage.store.session_or_default", lambda given: given)
        store = RemoteRunStore(f"oss://{BUCKET}/team", session=SessionOf(client))
        store.sync("r1", tmp_path)
        oss.seen.clear()
        store.sync("r1", tmp_path)
    assert len(oss.seen) == 1


def test_without_pai_sdk_the_commit_of_a_trace_comes_after_its_blocks(tmp_path: Path) -> None:
    remote = RunStore.create("memory://team").to_remote("r1")
    (folder := tmp_path / "trace" / "run=r1").mkdir(parents=True)
    names = [f"rank0-1-2-a1-{name}.parquet" for name in ("00000", "1blocks-1bytes-committed")]
    for name in names:
        (folder / name).write_bytes(b"1")
    sent: list[str] = []
    sync = _FolderSync(remote._private)

    def send(path: Path, name: str) -> None:
        del name
        sent.append(path.name)
        if len(sent) == 1:
            raise OSError("no response")

    sync._send = send
    with refused(OSError):
        sync(str(tmp_path))
    assert sent == names[:1]
    sync(str(tmp_path))
    assert sent == [names[0], *names]


def test_without_saved_runs_there_is_no_sync(tmp_path: Path) -> None:
    for prefix in (str(tmp_path), "memory://team"):
        store = RunStore.create(prefix, save_runs=False)
        remote = pickle.loads(pickle.dumps(store.to_remote("r1")))
        for sync in (partial(store.sync, "r1"), store.sync_fn("r1"), remote.sync):
            with refused(ValueError):
                sync(str(tmp_path / "runs" / "r1"))


def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = RunStore.create("~/team", "~/data")
    assert store.prefix_path == (tmp_path / "team").as_uri()
    assert store.get_train_data_path() == (tmp_path / "data").as_uri()
    with refused(InvalidInputError, "path"):
        RunStore.create("~nobody-of-this-name/team")
