"""Files sent to `oss://` where pai_sdk is not installed: failures, growing files, ossfs, and no key in sight."""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pai_sdk._data.run.store import oss_folder
from pai_sdk._data.run.store.oss_folder import OssFolder, endpoint_of, key_of_environment
from pai_sdk._data.run.store.remote_run import RemoteRun
from pai_sdk._data.run.store.run_store import RunStore
from pai_sdk._data.storage.oss import v4 as oss_v4
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.uri import OssUri
from tests.support.fake_oss import FakeOss
from tests.support.messages import refused
from tests.unit.data.storage.conftest import BUCKET, client, oss, retry

__all__ = ["client", "oss", "retry"]

LARGE = bytes(range(251)) * 70_000  # three parts


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "key-id")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "the-secret")
    monkeypatch.setenv("ALIBABA_CLOUD_SECURITY_TOKEN", "the-token")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.fixture
def folder(client: OssClient) -> OssFolder:
    return OssFolder(client.place(OssUri.parse(f"oss://{BUCKET}/run/")), oss_v4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize("content", [b"", b"1", LARGE], ids=["empty", "small", "large"])
@pytest.mark.parametrize("kind", ["reset", "lost", "status"])
def test_what_passes_is_tried_again(
    oss: FakeOss, folder: OssFolder, file: Path, content: bytes, kind: str
) -> None:
    file.write_bytes(content)
    oss.fail(kind, times=2)
    folder.send(file, "sub/a")
    assert oss.buckets[BUCKET]["run/sub/a"].content == content
    assert {seen.headers["x-oss-security-token"] for seen in oss.seen} == {"the-token"}


def test_an_end_of_an_upload_whose_response_was_lost(oss: FakeOss, folder: OssFolder, file: Path) -> None:
    file.write_bytes(LARGE)
    oss.fail("lost", fits=lambda seen: seen.method == "POST" and "uploadId" in seen.query)
    folder.send(file, "a")
    assert oss.buckets[BUCKET]["run/a"].content == LARGE


def test_a_refusal_is_final_and_shows_no_secret(oss: FakeOss, folder: OssFolder, file: Path) -> None:
    file.write_bytes(LARGE)
    oss.fail("status", status=403, code="AccessDenied", times=100)
    with refused(PermissionError) as caught:
        folder.send(file, "a")
    assert len(oss.seen) == 1
    assert "the-secret" not in str(caught.value)
    assert "the-token" not in str(caught.value)
    assert "the-secret" not in repr(key_of_environment())


def test_the_parts_of_a_failed_upload_are_removed(oss: FakeOss, folder: OssFolder, file: Path) -> None:
    file.write_bytes(LARGE)
    oss.fail("status", status=403, code="AccessDenied", fits=lambda seen: seen.query.get("partNumber") == "2")
    with pytest.raises(PermissionError):
        folder.send(file, "a")
    assert (oss.seen[-1].method, "uploadId" in oss.seen[-1].query) == ("DELETE", True)
    assert "run/a" not in oss.buckets[BUCKET]


@pytest.mark.parametrize("content", [b"1" * 100, LARGE], ids=["small", "large"])
def test_a_file_that_is_written_while_it_is_read(
    oss: FakeOss, folder: OssFolder, file: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(content)
    hashed = oss_folder._sha256_of

    def change(text: bytes, mode: str) -> None:
        def between(stream: Any, size_bytes: int) -> str:
            digest = hashed(stream, size_bytes)
            with file.open(mode) as out:
                out.write(text)
            return digest

        monkeypatch.setattr(oss_folder, "_sha256_of", between)

    change(b"another line", "ab")
    folder.send(file, "a")
    assert oss.buckets[BUCKET]["run/a"].content == content
    change(b"2" * len(content), "wb")
    with refused(OSError):
        folder.send(file, "a")
    assert oss.buckets[BUCKET]["run/a"].content == content


def test_where_it_is_comes_with_it_or_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAI_OSS_ENDPOINT", "PAI_REGION_ID"):
        monkeypatch.delenv(name, raising=False)
    there = {"bucket": "b", "key": "", "endpoint": "http://127.0.0.1:1", "region": "cn-test"}
    assert endpoint_of(there) == ("http://127.0.0.1:1", "cn-test")
    with refused(RuntimeError):
        endpoint_of({})
    monkeypatch.setenv("PAI_REGION_ID", "cn-hangzhou")
    assert endpoint_of({}) == ("https://oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou")
    monkeypatch.setenv("PAI_OSS_ENDPOINT", "oss-cn-beijing-internal.aliyuncs.com")
    monkeypatch.delenv("PAI_REGION_ID")
    assert endpoint_of({}) == ("https://oss-cn-beijing-internal.aliyuncs.com", "cn-beijing")
    assert OssFolder({"bucket": "b", "key": ""}, oss_v4)._url == "https://b.oss-cn-beijing-internal.aliyuncs.com/"


class SessionOf:
    backend_for = None

    def __init__(self, client: OssClient) -> None:
        self._client = client

    def __getstate__(self) -> dict[str, object]:
        return {}  # of a real session, a pickled store keeps a reference without keys

    def files(self) -> OssClient:
        return self._client


@pytest.fixture
def remote(client: OssClient, monkeypatch: pytest.MonkeyPatch) -> RemoteRun:
    monkeypatch.setattr(RemoteRun, "_with_pai_sdk", lambda self: None)
    return RunStore.create(f"oss://{BUCKET}/team", session=SessionOf(client)).to_remote("r1")


def test_the_marker_of_a_checkpoint_comes_last(remote: RemoteRun, oss: FakeOss, tmp_path: Path) -> None:
    out = tmp_path / "out" / "checkpoints" / "1"
    out.mkdir(parents=True)
    for name in ("A", "_COMPLETE", "z"):
        (out / name).write_text(name)
    remote.sync(str(tmp_path / "out"))
    assert [seen.key.rpartition("/")[2] for seen in oss.seen if seen.method == "PUT"] == ["A", "z", "_COMPLETE"]


def test_ossfs_is_used_where_it_is_installed(
    remote: RemoteRun, oss: FakeOss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, dict[str, Any]]] = []
    sent: list[tuple[str, str]] = []

    class Files:
        def makedirs(self, path: str, exist_ok: bool) -> None: ...

        def put_file(self, here: str, there: str) -> None:
            sent.append((Path(here).name, there))

    def url_to_fs(uri: str, **options: Any) -> tuple[Files, str]:
        opened.append((uri, options))
        return Files(), uri.partition("://")[2]

    monkeypatch.setitem(sys.modules, "ossfs", ModuleType("ossfs"))
    monkeypatch.setattr("fsspec.url_to_fs", url_to_fs)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("1")
    remote.sync(str(tmp_path / "out"))
    assert sent == [("a", f"{BUCKET}/team/runs/r1/a")]
    expected = {"endpoint": oss.endpoint, "key": "key-id", "secret": "the-secret", "token": "the-token"}
    assert opened == [(f"oss://{BUCKET}/team/runs/r1/", expected)]


def test_no_key_is_pickled(remote: RemoteRun) -> None:
    pickled = pickle.dumps(remote)
    for name in ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN"):
        assert os.environ[name].encode() not in pickled
    assert b"key-secret" not in pickled
