"""A store over WebHDFS: fsspec's client, unmodified, against a small server of the tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import LocalFileSystem

from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.store import FsspecStore, Store
from pai_sdk._data.storage.stores.hdfs import HadoopFiles
from pai_sdk.errors import StorageError
from tests.support.messages import refused
from tests.unit.data.storage.stores.store_conformance import StoreConformance
from tests.unit.data.storage.stores.webhdfs_server import Asked, RemoteException, WebHdfs


@pytest.fixture
def hdfs() -> Iterator[WebHdfs]:
    server = WebHdfs()
    yield server
    server.close()


class TestWebHdfs(StoreConformance):
    keeps_modes = False

    @pytest.fixture
    def store(self, hdfs: WebHdfs) -> Store:
        return FsspecStore(f"webhdfs://127.0.0.1:{hdfs.port}/user/tests")

    def test_a_file_is_replaced_in_one_step(self, store: Store, hdfs: WebHdfs) -> None:
        store.write("a", b"old")
        hdfs.asked.clear()
        store.write("a", b"new")
        assert [(asked.op, asked.query.get("renameoptions")) for asked in hdfs.asked if asked.op == "RENAME"] == [
            ("RENAME", "OVERWRITE")
        ]
        assert not [asked for asked in hdfs.asked if asked.op == "DELETE"]
        assert hdfs.files() == {"/user/tests/a": b"new"}

    def test_a_gateway_that_never_replaces_a_file(self, store: Store, hdfs: WebHdfs) -> None:
        hdfs.ignores_rename_options = True
        for content in (b"old", b"new"):
            store.write("a", content)
        assert hdfs.files() == {"/user/tests/a": b"new"}

    def test_an_error_of_a_datanode_is_not_taken_for_content(self, store: Store, hdfs: WebHdfs) -> None:
        store.write("a", b"content")

        def fail(asked: Asked) -> None:
            if asked.of_datanode:
                raise RemoteException(403, "AccessControlException", "the datanode refuses")

        hdfs.before = fail
        with pytest.raises(StorageError, match="403"):
            b"".join(store.read("a"))

    def test_a_namenode_that_is_busy_is_asked_again(self, hdfs: WebHdfs) -> None:
        pauses: list[float] = []
        retry = RetryPolicy(max_attempts=4, sleep=pauses.append)
        store = FsspecStore(f"webhdfs://127.0.0.1:{hdfs.port}/user/tests", {"retry": retry})
        busy = iter([True, True])

        def fail(asked: Asked) -> None:
            if next(busy, False):
                raise RemoteException(503, "RetriableException", "starting")

        hdfs.before = fail
        store.write("a", b"1")
        assert len(pauses) == 2
        assert hdfs.files() == {"/user/tests/a": b"1"}

    def test_refusals_are_errors_of_storage(self, store: Store, hdfs: WebHdfs) -> None:
        store.write("a", b"1")
        hdfs.forbidden.add("dr.who")
        with refused(StorageError):
            store.head("a")
        with refused(StorageError):
            store.write("b", b"1")
        with refused(StorageError):
            list(store.list())

    def test_the_user_is_the_one_of_the_uri(self, hdfs: WebHdfs) -> None:
        FsspecStore(f"webhdfs://alice@127.0.0.1:{hdfs.port}/user/alice").write("a", b"1")
        assert {asked.query.get("user.name") for asked in hdfs.asked if not asked.of_datanode} == {"alice"}

    def test_every_request_has_timeouts(self, hdfs: WebHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
        timeouts: set[object] = set()
        send = requests.adapters.HTTPAdapter.send

        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            timeouts.add(kwargs["timeout"])
            return send(self, *args, **kwargs)

        monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", noted)
        store = FsspecStore(f"webhdfs://127.0.0.1:{hdfs.port}/timeouts")
        store.write("a", b"1")
        assert b"".join(store.read("a")) == b"1"
        assert timeouts == {(10.0, 60.0)}


def test_a_namenode_that_is_away_is_an_error_that_may_pass() -> None:
    retry = RetryPolicy(max_attempts=2, sleep=lambda seconds: None)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        store = FsspecStore(f"webhdfs://127.0.0.1:{unused.getsockname()[1]}/x", {"retry": retry})
        with pytest.raises(StorageError) as caught:
            store.head("a")
    assert caught.value.retryable


def test_without_libhdfs_the_error_names_webhdfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    with pytest.raises(StorageError, match="webhdfs://namenode:9870"):
        FsspecStore("hdfs://namenode:8020/user/tests")


def test_pyarrow_never_removes_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    """pyarrow's delete_dir, which fsspec calls for rmdir, removes all that is in a folder."""
    files = HadoopFiles.__new__(HadoopFiles)
    ArrowFSWrapper.__init__(files, LocalFileSystem(), skip_instance_cache=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_bytes(b"1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OSError, match="not empty"):
        files.rmdir(str(tmp_path / "full"))
    files.rmdir(str(tmp_path / "empty"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "x"]
    assert files.cat_file(str(tmp_path / "full" / "x"), 0, 1) == b"1"
    with pytest.raises(FileNotFoundError):
        files.rm_file(str(tmp_path / "missing"))
