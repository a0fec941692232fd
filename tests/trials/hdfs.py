"""The store over HDFS, on a namenode that is running: the suite that all stores pass, and a run store.

`python -m tests.trials hdfs --webhdfs webhdfs://me@host:9870/user/me --hdfs hdfs://me@host:8020/user/me`

The second needs JAVA_HOME, CLASSPATH (Hadoop's jars) and ARROW_LIBHDFS_DIR. A namenode and a datanode of Hadoop
2.7 run from the jars in the source distribution of pyspark 2.4 and Debian's libjersey1 packages, with Java 17.
Its datanode decodes names twice: the suite's file `%2e%2e` cannot be read there over WebHDFS, which is an error.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow
import pyarrow.parquet
import pytest

from pai_sdk._data.run.store.run_store import HdfsRunStore
from pai_sdk._data.storage.store import FsspecStore, Store
from tests.unit.data.storage.stores.store_conformance import StoreConformance

WEBHDFS, HDFS = "TRIAL_WEBHDFS", "TRIAL_HDFS"


def folder(variable: str) -> str:
    """A new folder on the namenode."""
    if variable not in os.environ:
        pytest.skip(f"{variable} names no folder")
    return f"{os.environ[variable].rstrip('/')}/{uuid.uuid4().hex}"


class TestWebHdfs(StoreConformance):
    keeps_modes = False

    @pytest.fixture
    def store(self) -> Store:
        return FsspecStore(folder(WEBHDFS))


class TestLibHdfs(StoreConformance):
    keeps_modes = False

    @pytest.fixture
    def store(self) -> Store:
        return FsspecStore(folder(HDFS))

    def test_readers_see_the_old_or_the_new_content(self, store: Store) -> None:
        """Not promised: libhdfs replaces a file by delete and rename, so readers may find none for a moment."""
        for content in (b"old", b"new"):
            store.write("file", content)
            assert b"".join(store.read("file")) == content

    def test_a_folder_that_is_not_empty_stays(self, store: Store) -> None:
        for path in ("a/b/x", "a/c/y"):
            store.write(path, b"1")
        store.delete(["a/b/x", "a/"])
        assert [file.path for file in store.list()] == ["a/c/y"]


@pytest.mark.parametrize(("variable", "driver"), [(WEBHDFS, "webhdfs"), (HDFS, "libhdfs")])
def test_a_run_store(variable: str, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    parts = urlsplit(folder(variable))
    store = HdfsRunStore(f"hdfs://{parts.netloc}{parts.path}", driver=driver)
    run = store.get_run_path("r1")
    with store.local_dir("r1") as local:
        Path(local, "sub").mkdir()
        Path(local, "a").write_text("1")
        Path(local, "sub", "b").write_text("2")
        assert [store.sync("r1", local).moved for _ in range(2)] == [2, 0]
        Path(local, "a").unlink()
        assert store.sync("r1", local, delete=True).deleted == 1
    assert list(store.list(run)) == [f"{run}/sub/b"]
    assert store.read(f"{run}/sub/b") == b"2"
    data = store.get_train_data_path()
    pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2]}), tmp_path / "part.parquet")
    store._open(data).write("part.parquet", tmp_path / "part.parquet")
    assert store.is_parquet_dataset(data)
    assert store.get_parquet_dataset(data).read().to_pydict() == {"x": [1, 2]}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials hdfs", description=__doc__)
    parser.add_argument("--webhdfs", help="a folder on a namenode, by its HTTP port")
    parser.add_argument("--hdfs", help="a folder on a namenode, by its RPC port")
    given = parser.parse_args(arguments)
    uris = {variable: uri for variable, uri in ((WEBHDFS, given.webhdfs), (HDFS, given.hdfs)) if uri}
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    return subprocess.run(program, env={**os.environ, **uris}, check=False).returncode
