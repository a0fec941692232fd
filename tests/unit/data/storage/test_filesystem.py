"""`oss://` as a file system of fsspec: fsspec's own suite for file systems, then what is special."""

from __future__ import annotations

import posixpath
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from fsspec.registry import _registry
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from pai_sdk._data.storage.filesystem import OssFileSystem, register
from pai_sdk._data.storage.oss.client import OssClient
from tests.support.fake_oss import FakeOss
from tests.unit.data.storage.conftest import BUCKET


class OssFixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, client: OssClient) -> OssFileSystem:
        return OssFileSystem(client=client)

    @pytest.fixture
    def fs_path(self) -> str:
        return f"{BUCKET}/suite"

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return posixpath.join

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(AbstractCopyTests, OssFixtures):
    pass


class TestGet(AbstractGetTests, OssFixtures):
    pass


class TestPut(AbstractPutTests, OssFixtures):
    pass


class TestOpen(AbstractOpenTests, OssFixtures):
    pass


class TestPipe(AbstractPipeTests, OssFixtures):
    pass


@pytest.fixture
def fs(client: OssClient) -> OssFileSystem:
    return OssFileSystem(client=client)


@pytest.fixture
def registered() -> Iterator[None]:
    register()
    yield
    _registry.pop("oss")


def test_nothing_is_registered_before_it_is_asked_for() -> None:
    program = "import pai_sdk._data.storage.filesystem, fsspec; print('oss' in fsspec.registry)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_pyarrow_and_fsspec_open_oss_once_it_is_registered(
    client: OssClient, registered: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = OssFileSystem(client=client)
    monkeypatch.setattr(
        "pai_sdk._data.storage.store.session_or_default", lambda session: SimpleNamespace(files=lambda: client)
    )
    table = pyarrow.table({"x": list(range(1000))})
    with fsspec.open(f"oss://{BUCKET}/data/a.parquet", "wb") as out:
        pyarrow.parquet.write_table(table, out)
    dataset = pyarrow.parquet.ParquetDataset(f"{BUCKET}/data", filesystem=files)
    assert dataset.read().equals(table)
    with fsspec.open(f"oss://{BUCKET}/data/a.parquet") as stream:
        assert pyarrow.parquet.read_table(stream).equals(table)


def test_an_object_appears_when_its_file_is_closed(fs: OssFileSystem) -> None:
    with fs.open(f"{BUCKET}/a", "wb") as out:
        out.write(b"1" * (6 << 20))
        assert not fs.exists(f"{BUCKET}/a")
    assert fs.size(f"{BUCKET}/a") == 6 << 20
    with pytest.raises(FileExistsError):
        fs.open(f"{BUCKET}/a", "xb")
    with pytest.raises(NotImplementedError, match="appended"), fs.open(f"{BUCKET}/a", "ab") as out:
        out.write(b"1" * (6 << 20))
    with fs.transaction:
        fs.pipe(f"{BUCKET}/b", b"2")
        with fs.open(f"{BUCKET}/c", "wb") as out:
            out.write(b"3")
        assert not fs.exists(f"{BUCKET}/c")
    assert fs.cat([f"{BUCKET}/b", f"{BUCKET}/c"]) == {f"{BUCKET}/b": b"2", f"{BUCKET}/c": b"3"}


def test_one_listing_finds_a_whole_tree(fs: OssFileSystem, oss: FakeOss) -> None:
    for number in range(30):
        fs.pipe(f"{BUCKET}/tree/{number % 7}/{number}", b"")
    oss.seen.clear()
    assert len(fs.find(f"{BUCKET}/tree")) == 30
    assert len(oss.seen) == 1
    assert fs.ls(f"{BUCKET}/tree", detail=False) == [f"{BUCKET}/tree/{number}" for number in range(7)]
    assert [each["type"] for each in fs.ls(f"{BUCKET}/tree")] == ["directory"] * 7


def test_what_is_not_there(fs: OssFileSystem, tmp_path: Path) -> None:
    for act in (fs.info, fs.ls, fs.cat_file, fs.modified):
        with pytest.raises(FileNotFoundError):
            act(f"{BUCKET}/missing")
    for path in ("", "/"):
        with pytest.raises(FileNotFoundError):
            fs.info(path)
    assert fs.find(f"{BUCKET}/missing") == []
    assert fs.cat_file(_made(fs), -3, -1) == b"45"
    assert fs.cat_file(f"{BUCKET}/digits", 2, 4) == b"23"


def _made(fs: OssFileSystem) -> str:
    fs.pipe(f"{BUCKET}/digits", b"0123456")
    return f"{BUCKET}/digits"
