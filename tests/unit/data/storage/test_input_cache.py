"""The cache of inputs from OSS: fetched once for all jobs; kept within its limit; never another content."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.storage.input_cache import InputCache
from pai_sdk._data.storage.objects import ObjectInfo
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import InvalidInputError, StorageError, TransferError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S

FOLDER = OssUri.parse("oss://models/data/")


@dataclass
class Objects:
    """A bucket in memory, or rather in a dict; counts what is fetched."""

    contents: dict[str, bytes]
    etags: dict[str, str] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    on_fetch: object = None

    def info(self, key: str) -> ObjectInfo:
        content = self.contents[key]
        etag = self.etags.get(key) or hashlib.md5(content).hexdigest().upper()
        return ObjectInfo(OssUri("models", key), len(content), etag, {})

    def head(self, uri: OssUri) -> ObjectInfo | None:
        return self.info(uri.key) if uri.key in self.contents else None

    def list(self, prefix: OssUri, *, unnamed: Callable[[str, InvalidInputError], None]) -> Iterator[ObjectInfo]:
        for key in sorted(self.contents):
            if key.startswith(prefix.key):
                try:
                    yield self.info(key)
                except InvalidInputError as error:
                    unnamed(key, error)

    def cancelled_by(self, stopped: threading.Event, may_retry: Callable[[], bool]) -> Objects:
        return self

    def get_file(self, uri: OssUri, path: Path) -> ObjectInfo:
        self.fetched.append(uri.key)
        if self.on_fetch:
            self.on_fetch(uri.key)
        path.write_bytes(self.contents[uri.key])
        return self.info(uri.key)


def fill(cache: InputCache, objects: Objects, target: Path, uri: OssUri = FOLDER) -> dict[str, bytes]:
    cache.fill(objects, uri, target, progress=False)
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def let_an_hour_pass(cache: Path) -> None:
    """Two uses within one tick of the file system's clock have the same time."""
    for path in (cache / "objects").iterdir():
        used_at = path.stat().st_mtime - 3600
        os.utime(path, (used_at, used_at))


def test_the_second_job_fetches_nothing_and_has_the_same_files(tmp_path: Path) -> None:
    cache, objects = InputCache(tmp_path / "cache"), Objects({"data/a": b"1", "data/deep/b": b"2", "data/": b""})
    assert fill(cache, objects, tmp_path / "one") == {"a": b"1", "deep/b": b"2"}
    assert fill(cache, objects, tmp_path / "two") == {"a": b"1", "deep/b": b"2"}
    assert sorted(objects.fetched) == ["data/a", "data/deep/b"]
    assert (tmp_path / "one" / "a").samefile(tmp_path / "two" / "a")


def test_what_changed_is_fetched_again(tmp_path: Path) -> None:
    cache, objects = InputCache(tmp_path / "cache"), Objects({"data/a": b"1", "data/b": b"2"})
    fill(cache, objects, tmp_path / "one")
    objects.contents["data/a"] = b"new"
    assert fill(cache, objects, tmp_path / "two") == {"a": b"new", "b": b"2"}
    assert objects.fetched[2:] == ["data/a"]
    assert (tmp_path / "one" / "a").read_bytes() == b"1"


def test_the_same_etag_with_another_size_is_another_object(tmp_path: Path) -> None:
    cache = InputCache(tmp_path / "cache")
    objects = Objects({"data/a": b"1", "data/b": b"22"}, etags={"data/a": "E", "data/b": "E"})
    assert fill(cache, objects, tmp_path / "one") == {"a": b"1", "b": b"22"}


def test_an_object_that_changes_while_it_is_fetched_is_not_kept_under_its_old_name(tmp_path: Path) -> None:
    cache, objects = InputCache(tmp_path / "cache"), Objects({"data/a": b"old"})
    objects.on_fetch = lambda key: objects.contents.update({key: b"new"})
    assert fill(cache, objects, tmp_path / "one") == {"a": b"new"}
    objects.on_fetch = None
    objects.contents["data/a"] = b"old"
    assert fill(cache, objects, tmp_path / "two") == {"a": b"old"}


def test_what_is_over_the_limit_goes_but_not_from_the_jobs(tmp_path: Path) -> None:
    cache = InputCache(tmp_path / "cache", limit_bytes=10)
    objects = Objects({"data/a": b"a" * 6})
    fill(cache, objects, tmp_path / "one")
    let_an_hour_pass(tmp_path / "cache")
    objects.contents = {"data/b": b"b" * 6}
    fill(cache, objects, tmp_path / "two")
    assert [path.stat().st_size for path in (tmp_path / "cache" / "objects").iterdir()] == [6]
    assert (tmp_path / "one" / "a").read_bytes() == b"a" * 6
    assert fill(cache, objects, tmp_path / "three") == {"b": b"b" * 6}
    assert objects.fetched == ["data/a", "data/b"]


def test_nothing_goes_away_while_somebody_fills_a_job(tmp_path: Path) -> None:
    cache = InputCache(tmp_path / "cache", limit_bytes=0)
    slow, quick = Objects({"data/a": b"a"}), Objects({"data/b": b"b"})
    is_fetching, may_go_on = threading.Event(), threading.Event()
    slow.on_fetch = lambda key: (is_fetching.set(), may_go_on.wait(PATIENCE_S))
    filling = threading.Thread(target=fill, args=(cache, slow, tmp_path / "slow"))
    filling.start()
    assert is_fetching.wait(PATIENCE_S)
    fill(cache, quick, tmp_path / "quick")
    assert len([*(tmp_path / "cache" / "objects").glob("[!.]*")]) == 1
    may_go_on.set()
    filling.join()
    assert [*(tmp_path / "cache" / "objects").iterdir()] == []
    assert (tmp_path / "slow" / "a").read_bytes() == b"a"


def test_what_a_killed_process_left_half_fetched_is_removed(tmp_path: Path) -> None:
    cache, objects = InputCache(tmp_path / "cache"), Objects({"data/a": b"1"})
    fill(cache, objects, tmp_path / "one")
    (tmp_path / "cache" / "objects" / ".x-9.part").write_bytes(b"half")
    fill(cache, objects, tmp_path / "two")
    assert [*(tmp_path / "cache" / "objects").glob(".*")] == []


def test_the_longest_unused_goes_first(tmp_path: Path) -> None:
    cache, objects = InputCache(tmp_path / "cache", limit_bytes=12), Objects({})
    for number, letter in enumerate("abac"):
        objects.contents = {f"data/{letter}": letter.encode() * 6}
        fill(cache, objects, tmp_path / str(number))
        let_an_hour_pass(tmp_path / "cache")
    kept = {path.read_bytes()[:1] for path in (tmp_path / "cache" / "objects").iterdir()}
    assert kept == {b"a", b"c"}


def _fill_in_a_process(folder: Path, number: int, all_are_there: Any, fetched: Any) -> None:
    objects = Objects({f"data/{name}": name.encode() * 1000 for name in "abcdef"})
    objects.on_fetch = lambda key: (fetched.put(key), time.sleep(0.1))  # long enough for the others to want it too
    all_are_there.wait(100)
    fill(InputCache(folder / "cache"), objects, folder / str(number))


def test_processes_that_want_the_same_fetch_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    fetched, all_are_there = context.Queue(), context.Barrier(4)
    processes = [
        context.Process(target=_fill_in_a_process, args=(tmp_path, number, all_are_there, fetched))
        for number in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * 4
    assert sorted(fetched.get(timeout=30) for _ in range(6)) == [f"data/{name}" for name in "abcdef"]
    assert fetched.empty()


@pytest.mark.parametrize("key", ["data/../evil", "data/a//b", "data/nul\0"])
def test_keys_that_cannot_be_files_are_reported_and_written_nowhere(tmp_path: Path, key: str) -> None:
    cache, objects = InputCache(tmp_path / "cache"), Objects({key: b"x"})
    with refused(TransferError):
        fill(cache, objects, tmp_path / "job" / "input")
    assert not (tmp_path / "job" / "evil").exists()


def test_a_key_that_no_uri_can_name_stops_no_other(tmp_path: Path) -> None:
    cache, objects = InputCache(tmp_path / "cache"), Objects({"..": b"x", "a": b"1"})
    with refused(TransferError) as caught:
        fill(cache, objects, tmp_path / "one", OssUri.parse("oss://models/"))
    assert list(caught.value.failures) == [".."]
    assert (tmp_path / "one" / "a").read_bytes() == b"1"


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file or folder"):
        fill(InputCache(tmp_path / "cache"), Objects({}), tmp_path / "one")
