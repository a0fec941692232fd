"""The engine that moves folders, on local disks and against the fake object store."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.store import FsspecStore, LocalStore, OssStore, Store, StoredFile
from pai_sdk._data.storage.sync.dir_sync import DirSync, SyncReport, committed_by
from pai_sdk._data.storage.sync.memory import SyncMemory, memory_path
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError, InvalidInputError, ObjectNotFoundError, StorageError, SyncError
from tests.support.fake_oss import FakeOss
from tests.unit.data.run.store.switched_store import SwitchedStore
from tests.unit.data.storage.conftest import BUCKET
from tests.unit.data.storage.stores.flaky_files import Flaky, FlakyObjects
from tests.unit.data.storage.sync.sync_machine import SyncMachine, tree_of

pytestmark = pytest.mark.interpreter

LARGE = bytes(range(251)) * 80_000  # 20 MB: three parts


@pytest.fixture
def here(tmp_path: Path) -> LocalStore:
    (tmp_path / "here").mkdir()
    return LocalStore(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "there")


@pytest.fixture
def remote(client: OssClient) -> OssStore:
    return OssStore(client, OssUri.parse(f"oss://{BUCKET}/run/"))


def paths(store: LocalStore | OssStore) -> list[str]:
    return [file.path for file in store.list(folders=True)]


def puts(oss: FakeOss) -> list[str]:
    return [seen.key.removeprefix("run/") for seen in oss.seen if seen.method == "PUT"]


# ---- what is moved ----------------------------------------------------------------------------------------


def test_a_slash_at_the_end_of_the_folder_changes_nothing(tmp_path: Path, remote: OssStore) -> None:
    LocalStore(tmp_path / "here").write("sub/a", b"1")
    DirSync(LocalStore(f"{tmp_path}/here/"), remote).run()
    assert paths(remote) == ["sub/a"]


def test_only_what_changed_is_sent_again(here: LocalStore, remote: OssStore, oss: FakeOss) -> None:
    for name in ("a", "b", "c"):
        here.write(name, b"1")
    assert DirSync(here, remote).run().moved == 3
    report = DirSync(here, remote).run()
    assert (report.moved, report.unchanged, report.files) == (0, 3, 3)
    oss.seen.clear()
    here.write("b", b"2")
    here.write("c", b"3")
    assert DirSync(here, remote).run().moved_bytes == 2
    assert sorted(puts(oss)) == ["b", "c"]


def test_a_sync_without_changes_asks_for_one_file(here: LocalStore, remote: OssStore, oss: FakeOss) -> None:
    for name in ("a", "b", "empty/"):
        here.write(name, b"")
    DirSync(here, remote).run()
    oss.seen.clear()
    DirSync(here, remote).run()
    assert [seen.method for seen in oss.seen] == ["HEAD"]


def test_what_was_moved_is_not_believed_of_a_target_that_was_emptied(here: LocalStore, remote: OssStore) -> None:
    for name in ("a", "b"):
        here.write(name, b"1")
    DirSync(here, remote).run()
    remote.delete(["a", "b"])
    assert DirSync(here, remote).run().moved == 2


def test_a_file_that_fails_keeps_what_it_replaces(here: LocalStore, remote: OssStore, oss: FakeOss) -> None:
    here.write("old", b"1")
    DirSync(here, remote).run()
    (here.root / "old").rename(here.root / "new")
    oss.fail("status", status=403, code="AccessDenied", fits=lambda seen: seen.method == "PUT")
    assert list(DirSync(here, remote, delete=True).attempt().failures) == ["new"]
    assert [file.path for file in remote.list()] == ["old"]
    assert DirSync(here, remote, delete=True).run().deleted == 1


def test_a_change_within_a_second_and_an_older_file_are_sent(here: LocalStore, remote: OssStore) -> None:
    here.write("a", b"1")
    os.utime(here.root / "a", ns=(0, 7_000_000_001))
    DirSync(here, remote).run()
    (here.root / "a").write_bytes(b"2")
    os.utime(here.root / "a", ns=(0, 7_000_000_002))
    DirSync(here, remote).run()
    assert b"".join(remote.read("a")) == b"2"
    (here.root / "older").write_bytes(b"3")
    os.utime(here.root / "older", ns=(0, 1))
    (here.root / "older").replace(here.root / "a")
    DirSync(here, remote).run()
    assert b"".join(remote.read("a")) == b"3"


TRACE = "run=r1/rank0-20261122T171801000000-20261122T171902000000-a1"


@pytest.mark.parametrize("commit", ["committed", "2blocks-2bytes-committed"])
def test_the_commit_of_a_trace_comes_after_its_blocks(
    here: LocalStore, remote: OssStore, oss: FakeOss, commit: str
) -> None:
    names = [f"{TRACE}-{name}.parquet" for name in (commit, "00000", "00001")]
    for name in (*names, "run=r2/z"):
        here.write(name, b"1")
    refused = f"run/{names[2]}"
    oss.fail("status", status=403, code="AccessDenied", times=1, fits=lambda seen: seen.key == refused)
    report = DirSync(here, remote).attempt()
    assert set(report.failures) == {names[2], names[0]}
    assert paths(remote) == [names[1], "run=r2/z"]
    oss.seen.clear()
    assert DirSync(here, remote).run().moved == 2
    assert puts(oss) == [names[2], names[0]]


def test_a_changed_mode_is_sent_and_arrives(here: LocalStore, remote: OssStore, there: LocalStore) -> None:
    here.write("run", b"#!")
    DirSync(here, remote).run()
    (here.root / "run").chmod(0o755)
    DirSync(here, remote).run()
    DirSync(remote, there).run()
    assert os.access(there.root / "run", os.X_OK)


def test_up_and_down_with_large_files_and_empty_folders(
    here: LocalStore, remote: OssStore, there: LocalStore
) -> None:
    here.write("large", LARGE)
    here.write("sub/small", b"x", executable=True)
    here.write("nothing", b"")
    here.write("empty/folder/", b"")
    DirSync(here, remote).run()
    DirSync(remote, there).run()
    assert tree_of(there.root) == tree_of(here.root)
    assert DirSync(remote, there).run().moved == 0


def test_a_change_on_the_local_side_is_undone_by_a_sync_down(remote: OssStore, there: LocalStore) -> None:
    for name in ("kept", "gone", "changed"):
        remote.write(name, b"1")
    DirSync(remote, there).run()
    (there.root / "gone").unlink()
    (there.root / "changed").write_bytes(b"2")
    assert DirSync(remote, there).run().moved == 2
    assert {b"".join(there.read(name)) for name in ("kept", "gone", "changed")} == {b"1"}


def test_verify_finds_what_was_changed_in_the_target(here: LocalStore, remote: OssStore) -> None:
    for name in ("kept", "gone", "changed"):
        here.write(name, b"1")
    DirSync(here, remote).run()
    remote.delete(["gone"])
    remote.write("changed", b"2")
    assert DirSync(here, remote).run().moved == 0
    assert DirSync(here, remote, verify=True).run().moved == 2
    assert b"".join(remote.read("changed")) == b"1"


def test_checksums_save_the_first_transfer(
    here: LocalStore, remote: OssStore, there: LocalStore, oss: FakeOss
) -> None:
    for store in (here, remote, there):
        store.write("same", b"same")
        store.write("size", b"this" if store is remote else b"that")
    oss.seen.clear()
    assert DirSync(here, remote, checksum=True, remember=False).run().moved == 1
    assert puts(oss) == ["size"]
    before = there.head("same").etag
    DirSync(remote, there, checksum=True, remember=False).run()
    assert there.head("same").etag == before
    assert b"".join(there.read("size")) == b"that"


def test_between_other_stores(here: LocalStore, there: LocalStore, remote: OssStore, tmp_path: Path) -> None:
    here.write("a/b", b"1", executable=True)
    memory = FsspecStore(f"memory://{tmp_path.name}/x")
    DirSync(here, memory).run()
    DirSync(memory, remote).run()
    DirSync(here, there).run()
    assert b"".join(remote.read("a/b")) == b"1"
    assert tree_of(there.root) == tree_of(here.root)
    assert DirSync(memory, remote).run().moved == 0


def test_a_dry_run_tells_and_does_nothing(here: LocalStore, there: LocalStore) -> None:
    here.write("new", b"12")
    there.write("old", b"")
    told: list[tuple[str, str]] = []
    report = DirSync(
        here, there, delete=True, dry_run=True, note=lambda action, path: told.append((action, path))
    ).run()
    assert told == [("move", "new"), ("delete", "old")]
    assert (report.moved, report.moved_bytes, report.deleted) == (1, 2, 1)
    assert paths(there) == ["old"]
    assert DirSync(here, there).run().moved == 1


# ---- deletions --------------------------------------------------------------------------------------------


def test_deletions_are_made_only_on_request(here: LocalStore, remote: OssStore) -> None:
    for name in ("a", "dir/b", "dir/c"):
        here.write(name, b"1")
    DirSync(here, remote).run()
    here.delete(["a", "dir/b"])
    DirSync(here, remote).run()
    assert paths(remote) == ["a", "dir/b", "dir/c"]
    assert DirSync(here, remote, delete=True).run().deleted == 2
    assert paths(remote) == ["dir/c"]
    here.write("a", b"1")
    assert DirSync(here, remote).run().moved == 1


def test_files_and_folders_change_places(here: LocalStore, there: LocalStore) -> None:
    here.write("x", b"file")
    here.write("y/deep/file", b"1")
    here.write("z/file", b"1")
    DirSync(here, there, delete=True).run()
    here.delete(["x", "y/deep/file", "z/file"])
    here.write("x/deep/file", b"2")
    here.write("y", b"file")
    here.write("z/", b"")
    DirSync(here, there, delete=True).run()
    assert tree_of(there.root) == tree_of(here.root)


@pytest.fixture(params=["local", "oss", "memory", "flaky", "flaky-objects", "unknown"])
def missing(request: pytest.FixtureRequest, tmp_path: Path, client: OssClient) -> Store:
    """A folder that is not there, in every kind of store."""
    for kind in (Flaky, FlakyObjects):
        kind.clear()
    if request.param == "local":
        return LocalStore(tmp_path / "typo")
    if request.param == "oss":
        OssStore(client, OssUri.parse(f"oss://{BUCKET}/data/")).write("a", b"1")
        return OssStore(client, OssUri.parse(f"oss://{BUCKET}/typo/"))
    if request.param == "unknown":
        return SwitchedStore(tmp_path / "typo")
    return FsspecStore(f"{request.param}://{tmp_path.name}/typo")


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_missing_source_is_an_error_and_changes_nothing(
    missing: Store, there: LocalStore, remote: OssStore, tmp_path: Path, delete: bool, dry_run: bool
) -> None:
    for target in (there, remote):
        target.write("a", b"1")
        memory = tmp_path / "memory.db"
        with SyncMemory(memory) as rows:
            rows.put("a", "here", "there")
        with pytest.raises(ObjectNotFoundError, match=r"typo.*no such"):
            DirSync(missing, target, delete=delete, remember=memory, dry_run=dry_run).run()
        assert paths(target) == ["a"]
        with SyncMemory(memory) as rows:
            assert [row.path for row in rows.rows()] == ["a"]


def test_an_empty_folder_elsewhere_empties_nothing(remote: OssStore, there: LocalStore, client: OssClient) -> None:
    client.put_bytes(remote.folder, b"")  # stands for the folder
    on_hdfs = FsspecStore("flaky://b/empty")
    on_hdfs._fs.makedirs("/b/empty")
    there.write("a", b"1")
    for source in (remote, on_hdfs):
        assert DirSync(source, there).run().files == 0
        with pytest.raises(ObjectNotFoundError, match=r"pai-sdk rm -r .*there") as caught:
            DirSync(source, there, delete=True).run()
        assert "nothing was deleted" in str(caught.value)
        assert paths(there) == ["a"]


def test_an_empty_local_folder_empties_the_target(here: LocalStore, remote: OssStore) -> None:
    remote.write("a", b"1")
    DirSync(here, remote, delete=True).run()
    assert paths(remote) == []


def test_a_bucket_that_is_not_there_empties_nothing(there: LocalStore, client: OssClient) -> None:
    there.write("a", b"1")
    for delete in (False, True):
        with pytest.raises(StorageError, match="NoSuchBucket"):
            DirSync(OssStore(client, OssUri.parse("oss://typo-bucket/run/")), there, delete=delete).run()
    assert paths(there) == ["a"]


def test_a_listing_that_fails_half_way_deletes_nothing(
    remote: OssStore, there: LocalStore, oss: FakeOss, client: OssClient
) -> None:
    client.part_sizes = PartSizes(page_objects=2)
    for name in "abcdef":
        remote.write(name, b"1")
        there.write(name, b"1")
        there.write(f"{name}-other", b"1")
    oss.fail("status", status=403, code="AccessDenied", fits=lambda seen: "continuation-token" in seen.query)
    with pytest.raises(StorageError, match="AccessDenied"):
        DirSync(remote, there, delete=True).run()
    assert len(paths(there)) == 12


def test_nothing_is_deleted_when_the_source_is_not_listed_as_a_whole(here: LocalStore, there: LocalStore) -> None:
    here.write("a", b"1")
    there.write("b", b"1")
    os.mkfifo(here.root / "pipe")
    with pytest.raises(SyncError, match="pipe"):
        DirSync(here, there, delete=True).run()
    assert paths(there) == ["a", "b"]


def test_a_link_in_the_target_is_never_followed(here: LocalStore, there: LocalStore, tmp_path: Path) -> None:
    outside = LocalStore(tmp_path / "outside")
    outside.write("precious", b"1")
    there.write("a", b"")
    (there.root / "link").symlink_to(outside.root)
    here.write("a", b"")
    DirSync(here, there, delete=True).run()
    assert paths(outside) == ["precious"]
    assert not (there.root / "link").is_symlink()


# ---- links ------------------------------------------------------------------------------------------------


def test_links_are_followed_stored_or_refused(
    here: LocalStore, remote: OssStore, there: LocalStore, tmp_path: Path
) -> None:
    here.write("sub/a", b"1")
    (here.root / "link").symlink_to("sub")
    (here.root / "latest").symlink_to("sub/a")
    DirSync(here, there).run()
    assert paths(there) == ["latest", "link/a", "sub/a"]
    stored = LocalStore(here.root, links="store")
    DirSync(stored, remote).run()
    back = LocalStore(tmp_path / "back", links="store")
    DirSync(remote, back).run()
    assert (back.root / "link").readlink() == Path("sub")
    assert (back.root / "latest").read_bytes() == b"1"
    assert DirSync(remote, back).run().moved == 0
    assert DirSync(stored, LocalStore(tmp_path / "twin")).run().moved == 3
    with pytest.raises(SyncError) as caught:
        DirSync(LocalStore(here.root, links="error"), LocalStore(tmp_path / "refused")).run()
    assert set(caught.value.failures) == {"latest", "link"}


def test_a_stored_link_does_not_lead_out_of_the_target(remote: OssStore, there: LocalStore) -> None:
    for name, target in {"up": "../../x", "absolute": "/etc/passwd", "fine": "a"}.items():
        remote.write_link(name, target)
    with pytest.raises(SyncError) as caught:
        DirSync(remote, there).run()
    assert set(caught.value.failures) == {"up", "absolute"}
    assert [name for name in ("up", "absolute", "fine") if (there.root / name).is_symlink()] == ["fine"]


# ---- failures ---------------------------------------------------------------------------------------------


def test_one_file_that_fails_does_not_stop_the_others(here: LocalStore, remote: OssStore, oss: FakeOss) -> None:
    for name in "abcdef":
        here.write(name, b"1")
    oss.fail("status", status=403, code="AccessDenied", times=2, fits=lambda seen: seen.key in ("run/b", "run/e"))
    with pytest.raises(SyncError, match="2 of 6 files") as caught:
        DirSync(here, remote).run()
    assert set(caught.value.failures) == {"b", "e"}
    assert paths(remote) == ["a", "c", "d", "f"]
    oss.seen.clear()
    DirSync(here, remote).run()
    assert sorted(puts(oss)) == ["b", "e"], "only what failed is sent again"


def test_passing_failures_are_retried(here: LocalStore, remote: OssStore, oss: FakeOss) -> None:
    here.write("a", b"1")
    oss.fail("status", status=503, times=2)
    assert DirSync(here, remote).run().moved == 1


def test_it_gives_up_when_the_other_side_is_down(here: LocalStore, remote: OssStore, oss: FakeOss) -> None:
    for number in range(300):
        here.write(f"{number}", b"1")
    oss.fail("status", status=503, times=10_000)
    with pytest.raises(SyncError, match="remaining files were skipped"):
        DirSync(here, remote, workers=4).run()
    assert len(oss.seen) < 100


def test_a_file_that_is_removed_while_it_is_synced_is_no_failure(here: LocalStore, remote: OssStore) -> None:
    here.write("a", b"1")
    here.write("b", b"1")

    def note(action: str, path: str) -> None:
        if path == "a":
            (here.root / "a").unlink()

    assert DirSync(here, remote, note=note).run().failures == {}
    assert paths(remote) == ["b"]


@pytest.mark.parametrize("content", [b"1" * 10, b"1" * (9 << 20)], ids=["small", "large"])
def test_a_file_that_changes_while_it_is_read_is_sent_again(
    here: LocalStore, remote: OssStore, oss: FakeOss, content: bytes
) -> None:
    here.write("a", content)
    changes = iter([b"2" * len(content)])

    def change(seen: object) -> None:
        for changed in changes:
            (here.root / "a").write_bytes(changed)

    oss.before = change
    assert DirSync(here, remote).run().moved == 1
    assert b"".join(remote.read("a")) == b"2" * len(content)


def test_a_file_that_never_rests_is_a_failure(here: LocalStore, remote: OssStore, oss: FakeOss) -> None:
    here.write("a", b"1")
    oss.before = lambda seen: (here.root / "a").write_bytes(os.urandom(8))
    with pytest.raises(SyncError) as caught:
        DirSync(here, remote).run()
    assert isinstance(caught.value.failures["a"], FileChangedError)
    oss.before = lambda seen: None
    assert DirSync(here, remote).run().moved == 1


def test_a_growing_file_is_kept_as_it_was_read_and_moved_again(
    here: LocalStore, remote: OssStore, oss: FakeOss
) -> None:
    here.write("log", b"1")
    oss.before = lambda seen: (here.root / "log").write_bytes(b"2" * 10)
    assert DirSync(here, remote, takes_growing=True).run().moved == 1
    oss.before = lambda seen: None
    assert b"".join(remote.read("log")) == b"1"
    assert DirSync(here, remote, takes_growing=True).run().moved == 1
    assert b"".join(remote.read("log")) == b"2" * 10
    assert DirSync(here, remote).run().moved == 0


def test_an_object_that_is_replaced_while_it_is_fetched(remote: OssStore, there: LocalStore, oss: FakeOss) -> None:
    remote.write("a", LARGE)
    changed = []

    def change(seen) -> None:
        if "range" in seen.headers and not changed:
            changed.append(seen)
            remote.write("a", LARGE[::-1])

    oss.before = change
    DirSync(remote, there).run()
    assert b"".join(there.read("a")) == LARGE[::-1]


def test_stores_within_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="overlap"):
        DirSync(LocalStore(tmp_path), LocalStore(tmp_path / "sub"))


# ---- what is remembered -----------------------------------------------------------------------------------

KILLED = """
import os, sys
from pathlib import Path
from pai_sdk._data.storage.store import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
left = [int(sys.argv[3])]
def note(action, path):
    left[0] -= 1
    if not left[0]:
        os._exit(9)
DirSync(LocalStore(sys.argv[1]), LocalStore(sys.argv[2]), note=note, workers=2).run()
"""


def test_what_a_killed_process_has_moved_is_whole(here: LocalStore, there: LocalStore) -> None:
    content = {f"{number:03}": os.urandom(1000) for number in range(100)}
    for name, data in content.items():
        here.write(name, data)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(here.root), str(there.root), "60"], check=False)
    assert killed.returncode == 9
    arrived = paths(there)
    assert arrived
    assert len(arrived) < 100
    assert all(b"".join(there.read(name)) == content[name] for name in arrived)
    DirSync(here, there).run()
    assert tree_of(there.root) == tree_of(here.root)
    assert DirSync(here, there).run().moved == 0


def test_rows_are_kept_for_each_pair_of_folders(here: LocalStore, there: LocalStore, remote: OssStore) -> None:
    here.write("a", b"1")
    DirSync(here, there).run()
    assert memory_path(here, there).exists()
    assert not memory_path(here, remote).exists()
    assert DirSync(here, remote, remember=False).run().moved == 1
    assert DirSync(here, remote, remember=False).run().moved == 1
    assert not memory_path(here, remote).exists()


def test_a_full_disk_for_the_rows_keeps_no_file_from_being_moved(
    here: LocalStore, remote: OssStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    connect = sqlite3.connect

    def without_room(path: str | Path, **options: Any) -> sqlite3.Connection:
        if path != ":memory:":
            raise sqlite3.OperationalError("disk I/O error")
        return connect(path, **options)

    here.write("a.txt", b"a")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", without_room)
        assert DirSync(here, remote, remember=tmp_path / "memory.db").run().moved == 1
    assert "copied again by the next sync" in caplog.text
    assert paths(remote) == ["a.txt"]
    assert DirSync(here, remote, remember=tmp_path / "memory.db").run().failures == {}


def test_a_damaged_file_of_rows_is_made_anew(here: LocalStore, there: LocalStore, tmp_path: Path) -> None:
    here.write("a", b"1")
    memory = tmp_path / "memory.db"
    memory.write_bytes(b"this is no database" * 1000)
    assert DirSync(here, there, remember=memory).run().moved == 1
    assert DirSync(here, there, remember=memory).run().moved == 0


def test_rows_are_read_in_order_page_after_page(tmp_path: Path) -> None:
    with SyncMemory(tmp_path / "memory.db") as memory:
        for number in range(2500):
            memory.put(f"{number:05}", "s", "t")
        memory.forget("00007")
        memory.write(now=True)
        memory.forget("00007")
        memory.write(now=True)
        assert [row.path for row in memory.rows()] == [f"{n:05}" for n in range(2500) if n != 7]


def test_a_large_upload_goes_on_where_it_was_interrupted(here: LocalStore, remote: OssStore, oss: FakeOss) -> None:
    here.write("large", LARGE)
    oss.fail("status", status=503, times=100, fits=lambda seen: seen.query.get("partNumber") == "3")
    with pytest.raises(SyncError):
        DirSync(here, remote).run()
    oss.faults.clear()
    oss.seen.clear()
    DirSync(here, remote).run()
    assert [seen.query.get("partNumber") for seen in oss.seen if seen.method == "PUT"] == ["3"]
    assert b"".join(remote.read("large")) == LARGE


# ---- the listings ---------------------------------------------------------------------------------------


class Endless(Store):
    """A store whose listing has no end; it counts how much of it was read."""

    uri = "endless://x/"

    def __init__(self) -> None:
        self.listed = 0

    def list(self, prefix: str = "", **options: object) -> Iterator[StoredFile]:
        while True:
            self.listed += 1
            yield StoredFile(f"{self.listed:09}", 1, None, "etag")

    def head(self, path: str) -> StoredFile:
        return StoredFile(path, 1, None, "etag")

    def read(self, *args: object, **options: object) -> Any:
        raise StorageError("not now", retryable=True)

    write = copy = delete = read


def test_a_listing_is_read_as_the_sync_goes_on(there: LocalStore) -> None:
    source = Endless()
    report: SyncReport = DirSync(source, there, workers=4, remember=False).attempt()
    assert report.gave_up
    assert source.listed < 100


TestSyncMachine = SyncMachine.TestCase
TestSyncMachine.settings = settings(max_examples=30, stateful_step_count=15)


def test_a_commit_names_the_files_that_it_completes() -> None:
    session = "run=r1/rank0-20261122T171801000000-20261122T171902000000-a1"
    assert committed_by(f"{session}-committed.parquet") == session
    assert committed_by("run=r1/weights.parquet") is None


def test_a_memory_without_a_file_can_be_written_and_closed() -> None:
    memory = SyncMemory(None)
    memory.put("a.txt", "etag here", "etag there")
    memory.close()
