"""The stores, each against the same suite; what only one of them does; opening one by its URI."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

import pytest

from pai_sdk._data.storage.base import checked_path
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.store import FsspecStore, LocalStore, OssStore, Store, open_store
from pai_sdk._data.storage.stored_file import chunks_of
from pai_sdk._data.storage.stores.passing_errors import is_transient_error
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import InvalidInputError, MissingExtraError, ObjectNotFoundError, StorageError
from tests.support.messages import refused
from tests.unit.data.storage.conftest import BUCKET
from tests.unit.data.storage.stores.store_conformance import StoreConformance


class TestLocalStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "root of it")


class TestFsspecStore(StoreConformance):
    keeps_modes = False

    @pytest.fixture
    def store(self) -> Store:
        return FsspecStore(f"memory://{uuid.uuid4().hex}/")


class TestFsspecOnDisk(StoreConformance):
    keeps_modes = False

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FsspecStore(f"file://{tmp_path}/root", {"auto_mkdir": True})


# ---- the local disk ---------------------------------------------------------------------------------------


def test_a_link_to_a_folder_is_followed_and_a_circle_is_an_error(tmp_path: Path) -> None:
    outside = LocalStore(tmp_path / "outside")
    outside.write("x", b"1")
    store = LocalStore(tmp_path / "root")
    store.write("a/b", b"2")
    (store.root / "link").symlink_to(outside.root)
    assert [file.path for file in store.list()] == ["a/b", "link/x"]
    (store.root / "a" / "up").symlink_to("..")
    problems: dict[str, Exception] = {}
    assert [file.path for file in store.list(unlisted=problems.__setitem__)] == ["a/b", "link/x"]
    assert "a folder that it lies in" in str(problems["a/up"])
    with refused(InvalidInputError, "a/up"):
        list(store.list())


def test_policies_for_links(tmp_path: Path) -> None:
    root = tmp_path / "root"
    LocalStore(root).write("a", b"1")
    (root / "link").symlink_to("a")
    (root / "out").symlink_to("/etc")
    problems: dict[str, Exception] = {}
    found = LocalStore(root, links="error").list(unlisted=problems.__setitem__)
    assert [file.path for file in found] == ["a"]
    assert set(problems) == {"link", "out"}
    problems.clear()
    found = LocalStore(root, links="inside").list(unlisted=problems.__setitem__)
    assert [file.path for file in found] == ["a", "link"]
    assert set(problems) == {"out"}
    assert [file.path for file in LocalStore(root, links="store").list()] == ["a", "link", "out"]


def test_a_change_within_a_second_and_an_older_file_have_another_etag(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    etags = {store.write("a", b"1").etag}
    os.utime(tmp_path / "a", ns=(0, 5_000_000_001))
    etags.add(store.head("a").etag)
    os.utime(tmp_path / "a", ns=(0, 5_000_000_002))
    etags.add(store.head("a").etag)
    (tmp_path / "b").write_bytes(b"2")
    os.utime(tmp_path / "b", ns=(0, 5_000_000_002))
    (tmp_path / "b").replace(tmp_path / "a")
    etags.add(store.head("a").etag)
    assert len(etags) == 4


def test_a_write_through_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    store = LocalStore(tmp_path / "store")
    store.write("a", b"")
    (store.root / "link").symlink_to("../outside")
    with refused(StorageError):
        store.write("link/x", b"")
    assert not any((tmp_path / "outside").iterdir())


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "root")
    store.write("dir/a", b"")
    (tmp_path / "root" / "dir" / "a").unlink()
    (tmp_path / "root" / "dir").rmdir()
    store.write("dir/a", b"again")
    assert b"".join(store.read("dir/a")) == b"again"


# ---- opening ----------------------------------------------------------------------------------------------


def test_uris(tmp_path: Path, client: OssClient) -> None:
    assert open_store(tmp_path / "a b").uri == f"file://{tmp_path}/a%20b/"
    assert open_store(f"file://{tmp_path}/a%20b").uri == f"file://{tmp_path}/a%20b/"
    assert open_store(f"file:{tmp_path}").uri == f"file://{tmp_path}/"
    assert open_store("relative").uri == f"file://{Path.cwd()}/relative/"
    assert open_store("oss://models/runs", client=client).uri == "oss://models/runs/"
    assert open_store("oss://models", client=client).uri == "oss://models/"
    assert open_store("memory://x").uri == "memory://x/"


@pytest.mark.parametrize("uri", ["", "no-such-scheme://x", "file://other-host/x", "oss://Not A Bucket/"])
def test_uris_that_cannot_be(uri: str, client: OssClient) -> None:
    with pytest.raises(InvalidInputError):
        open_store(uri, client=client)


def test_oss_takes_the_client_of_the_session_or_of_the_default_one(
    client: OssClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeSession:
        def files(self) -> OssClient:
            return client

    asked: list[object] = []

    def provide(session: object, *, local: bool) -> object:
        asked.append(session)
        return session or FakeSession()

    monkeypatch.setattr("pai_sdk._client.session.default.session_or_default", provide)
    session = FakeSession()
    for given in (None, session):
        store = open_store(f"oss://{BUCKET}/x/", given)
        store.write("a", b"1")
        assert store.head("a").size_bytes == 1
    assert asked == [None, session]


def test_without_fsspec_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"\[fs\]") as caught:
        open_store("memory://x")
    assert caught.value.extra == "fs"


def test_a_scheme_whose_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match="s3"):
        open_store("s3://bucket/x")


# ---- OSS --------------------------------------------------------------------------------------------------


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(client: OssClient) -> None:
    store = OssStore(client, OssUri.parse(f"oss://{BUCKET}/x/"))
    store.write("large", b"1" * (9 << 20))
    pieces = store.read("large")
    next(pieces)
    store.write("large", b"2" * (9 << 20))
    with refused(StorageError, code="PreconditionFailed"):
        list(pieces)


def test_no_bucket_is_not_taken_for_no_file(client: OssClient) -> None:
    with refused(StorageError, code="NoSuchBucket") as caught:
        OssStore(client, OssUri.parse("oss://no-such-bucket/")).head("a")
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_a_path_within_a_store_is_unchanged() -> None:
    assert checked_path("runs/7/model.pt") == "runs/7/model.pt"


def test_bytes_are_one_chunk() -> None:
    assert list(chunks_of(b"hello")) == [b"hello"]


def test_a_broken_connection_is_transient_and_a_missing_right_is_not() -> None:
    assert is_transient_error(ConnectionResetError())
    assert not is_transient_error(PermissionError())
