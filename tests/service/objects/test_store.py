"""The store itself, as the service's own code uses it."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._service.oss.blobs import Blob, BlobFolder
from pai_sdk._service.oss.index import CommonPrefix
from pai_sdk._service.oss.object_rows import successor
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk.errors import ServiceStartError, StorageError
from tests.service.objects.contents import LARGE, blob_files, count_contents, count_rows, large
from tests.service.objects.serving import BUCKET, open_store
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until

HOSTILE_KEYS = [
    "plain.txt",
    "a/b/c",
    "a//b",
    "a/",
    "../../etc/passwd",
    "x/../../y",
    "..",
    ".",
    "~root",
    "with space",
    " ",
    "quote'\"`$(id)",
    "?#%+&=;:@",
    "%2F%00",
    "line\nbreak",
    "tab\tand\rreturn",
    "nul\x00inside",
    "\x01\x1f\x7f",
    "ünïcödé/日本語/🙂",
    "e\u0301 and \u00e9",
    "k" * 1023,
    "C:\\Windows",
]


def keys_of(store: ObjectStore, **options) -> list[str]:
    return [info.key for info in store.list(BUCKET, **options)]


def content_of(store: ObjectStore, key: str) -> bytes:
    with store.open(BUCKET, key) as stream:
        return stream.read()


def code_of(error: pytest.ExceptionInfo[StorageError]) -> tuple[int, str]:
    return error.value.status_code, error.value.code


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=ascii)
def test_any_key_comes_back_and_none_leads_out_of_the_folder(store: ObjectStore, tmp_path: Path, key: str) -> None:
    before = {path for path in tmp_path.rglob("*") if (tmp_path / "store" / "blobs") not in path.parents}
    store.put_bytes(BUCKET, key, key.encode())
    assert content_of(store, key) == key.encode()
    assert keys_of(store) == [key]
    after = {path for path in tmp_path.rglob("*") if (tmp_path / "store" / "blobs") not in path.parents}
    assert after == before
    store.delete(BUCKET, key)
    assert keys_of(store) == []
    assert count_contents(store) == 0


@pytest.mark.parametrize("key", ["", "/a", "\\a", "k" * 1024, "é" * 512, "\ud800"], ids=ascii)
def test_keys_oss_does_not_allow_are_refused_and_leave_nothing(store: ObjectStore, key: str) -> None:
    with pytest.raises(StorageError) as error:
        store.put_bytes(BUCKET, key, b"x")
    assert code_of(error) == (400, "InvalidObjectName")
    assert count_contents(store) == 0


@pytest.mark.parametrize(
    "name", ["ab", "a" * 64, "Upper", "under_score", "-lead", "trail-", "a.b", "a/b", "api", ""]
)
def test_bucket_names_oss_or_we_do_not_allow(store: ObjectStore, name: str) -> None:
    with pytest.raises(StorageError) as error:
        store.create_bucket(name)
    assert code_of(error) == (400, "InvalidBucketName")


def test_what_is_known_of_an_object(store: ObjectStore) -> None:
    store.put_bytes(BUCKET, "a.json", b"{}")
    info = store.head(BUCKET, "a.json")
    assert (info.size_bytes, info.content_type, info.kind) == (2, "application/json", "Normal")
    assert info.etag == hashlib.md5(b"{}").hexdigest().upper()
    assert content_of(store, "a.json") == b"{}"


@pytest.mark.parametrize(
    ("bucket", "code"), [(BUCKET, "NoSuchKey"), ("no-such-bucket", "NoSuchBucket")], ids=["key", "bucket"]
)
def test_what_is_not_there(store: ObjectStore, bucket: str, code: str) -> None:
    for read in (store.head, store.open):
        with pytest.raises(StorageError) as error:
            read(bucket, "missing")
        assert code_of(error) == (404, code)


def test_a_bucket_that_is_not_there_takes_and_lists_nothing(store: ObjectStore) -> None:
    for use in (
        lambda: store.put_bytes("no-such-bucket", "k", b"x"),
        lambda: list(store.list("no-such-bucket")),
        lambda: store.delete("no-such-bucket", "k"),
    ):
        with pytest.raises(StorageError) as error:
            use()
        assert code_of(error) == (404, "NoSuchBucket")
    assert count_contents(store) == 0
    assert not store.bucket_exists("no-such-bucket")


@pytest.mark.parametrize("sized", [bytes, large], ids=["small", "large"])
def test_a_reader_keeps_what_it_opened(store: ObjectStore, sized: Callable[[bytes], bytes]) -> None:
    old, new = sized(b"old"), sized(b"new")
    store.put_bytes(BUCKET, "k", old)
    with store.open(BUCKET, "k") as replaced:
        store.put_bytes(BUCKET, "k", new)
        with store.open(BUCKET, "k") as deleted:
            store.delete(BUCKET, "k")
            assert (replaced.read(), deleted.read()) == (old, new)
    assert count_contents(store) == 0


@pytest.mark.parametrize("sized", [bytes, large], ids=["small", "large"])
def test_a_copy_is_independent(store: ObjectStore, sized: Callable[[bytes], bytes]) -> None:
    store.put_bytes(BUCKET, "a", sized(b"one"))
    store.copy(BUCKET, "a", BUCKET, "b")
    store.put_bytes(BUCKET, "a", sized(b"two"))
    store.copy(BUCKET, "b", BUCKET, "b")
    assert content_of(store, "b") == sized(b"one")
    assert count_contents(store) == 2


def test_copies_of_a_small_object_share_its_row_until_the_last_one_goes(store: ObjectStore) -> None:
    store.put_bytes(BUCKET, "a", b"content")
    for key in ("b", "c", "d"):
        store.copy(BUCKET, "a", BUCKET, key)
    assert count_rows(store) == 1
    store.put_bytes(BUCKET, "a", b"other")
    store.put_bytes(BUCKET, "b", large(b"larger"))
    store.delete(BUCKET, "c")
    assert content_of(store, "d") == b"content"
    assert count_rows(store) == 2
    store.copy(BUCKET, "a", BUCKET, "d")
    assert count_rows(store) == 1
    store.delete_many(BUCKET, ["a", "b", "c", "d"])
    assert count_contents(store) == 0


@pytest.mark.parametrize("size_bytes", [0, 1, LARGE - 1, LARGE])
def test_contents_of_any_size_come_back(store: ObjectStore, size_bytes: int) -> None:
    content = os.urandom(size_bytes)
    with store.writer() as writer:
        for at in range(0, size_bytes, 50_000):
            writer.write(content[at : at + 50_000])
        info = store.finish(writer, BUCKET, "k")
    assert content_of(store, "k") == content
    assert (info.size_bytes, info.etag) == (size_bytes, hashlib.md5(content).hexdigest().upper())
    assert store.head(BUCKET, "k") == info
    assert len(blob_files(store)) == (0 if size_bytes < LARGE else 1)


def test_appending_is_seen_only_when_recorded(store: ObjectStore) -> None:
    def append(position: int, content: bytes) -> None:
        with store.writer() as writer:
            writer.write(content)
            store.append(writer, BUCKET, "log", position)

    append(0, b"first ")
    with store.open(BUCKET, "log") as early:
        append(6, b"second")
        assert early.read() == b"first "
    # What an append that died half-way leaves behind the recorded end:
    [file] = blob_files(store)
    with file.open("ab") as stream:
        stream.write(b"garbage")
    with store.open(BUCKET, "log") as stream:
        assert stream.read(3) == b"fir"
        assert stream.seek(-3, 2) == 9
        assert stream.read() == b"ond"
    append(12, b"!")
    assert content_of(store, "log") == b"first second!"
    for position, code in [(0, "PositionNotEqualToLength"), (14, "PositionNotEqualToLength")]:
        with pytest.raises(StorageError) as error:
            append(position, b"x")
        assert code_of(error) == (409, code)
    assert count_contents(store) == 1


def test_an_append_does_not_replace_what_was_put_meanwhile(store: ObjectStore) -> None:
    with store.writer() as writer:
        writer.write(b"appended")
        finish = writer.finish

        def put_at_the_last_moment(*, durable: bool = True) -> Blob:
            store.put_bytes(BUCKET, "k", b"put")
            return finish(durable=durable)

        writer.finish = put_at_the_last_moment  # type: ignore[method-assign]
        with pytest.raises(StorageError) as error:
            store.append(writer, BUCKET, "k", 0)
    assert code_of(error) == (409, "ObjectNotAppendable")
    assert content_of(store, "k") == b"put"
    assert count_contents(store) == 1


def test_a_slow_append_holds_up_no_other_object(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(key: str, position: int) -> None:
        with store.writer() as writer:
            writer.write(b"12345")
            store.append(writer, BUCKET, key, position)

    lock_of = store._appender.lock
    other = next(key for key in map(str, range(99)) if lock_of(BUCKET, key) is not lock_of(BUCKET, "slow"))
    for key in ("slow", other):
        append(key, 0)
    begun, go_on, copy = threading.Event(), threading.Event(), shutil.copyfileobj

    def slowly(*args: Any) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        copy(*args)

    monkeypatch.setattr(shutil, "copyfileobj", slowly)
    slow = threading.Thread(target=append, args=("slow", 5))
    slow.start()
    assert begun.wait(PATIENCE_S)
    monkeypatch.setattr(shutil, "copyfileobj", copy)
    others = threading.Thread(target=append, args=(other, 5), daemon=True)
    others.start()
    others.join(PATIENCE_S)
    is_held_up = others.is_alive()
    go_on.set()
    slow.join(PATIENCE_S)
    assert not is_held_up
    assert content_of(store, "slow") == content_of(store, other) == b"1234512345"


def test_what_was_stored_is_acknowledged_though_what_it_replaced_cannot_be_removed(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.put_bytes(BUCKET, "k", large(b"old"))
    upload = store.uploads.start(BUCKET, "parts", content_type="", headers={})
    with store.writer() as writer:
        writer.write(b"part")
        store.uploads.add_part(writer, BUCKET, "parts", upload, 1)
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.is_relative_to(tmp_path / "store" / "blobs"):  # a service of this process may have others
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    store.put_bytes(BUCKET, "k", large(b"new"))
    store.uploads.complete(BUCKET, "parts", upload)
    assert (content_of(store, "k"), content_of(store, "parts")) == (large(b"new"), b"part")
    store.delete(BUCKET, "k")
    assert keys_of(store) == ["parts"]
    told = [record.levelname for record in caplog.records if record.name == "pai_sdk._service.oss.blobs"]
    assert told == ["WARNING"] * 3


def test_an_append_to_what_was_deleted_meanwhile_is_refused(store: ObjectStore) -> None:
    with store.writer() as writer:
        writer.write(b"first")
        store.append(writer, BUCKET, "k", 0)
    with store.writer() as writer:
        writer.write(b"second")
        finish = writer.finish

        def delete_at_the_last_moment(*, durable: bool = True) -> Blob:
            store.delete(BUCKET, "k")
            return finish(durable=durable)

        writer.finish = delete_at_the_last_moment  # type: ignore[method-assign]
        with pytest.raises(StorageError) as error:
            store.append(writer, BUCKET, "k", 5)
    assert code_of(error) == (404, "NoSuchKey")
    assert count_contents(store) == 0


def test_writers_of_one_key_at_once_leave_one_whole_object(store: ObjectStore) -> None:
    contents = [bytes([letter]) * 200_000 for letter in b"abcdefgh"]
    threads = [threading.Thread(target=store.put_bytes, args=(BUCKET, "k", content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert content_of(store, "k") in contents
    assert count_contents(store) == 1


@pytest.mark.parametrize(
    ("prefix", "expected"), [(b"logs/", b"logs0"), (b"a\xff\xff", b"b"), (b"\xff", None), (b"", None)]
)
def test_the_successor_of_a_prefix_is_behind_all_its_keys(prefix: bytes, expected: bytes | None) -> None:
    assert successor(prefix) == expected


def test_lists_are_in_the_order_of_the_bytes(store: ObjectStore) -> None:
    keys = ["b", "a", "A", "a/1", "a0", "a-", "é", "z", "\U0001f642", "\uffee", "~"]
    for key in keys:
        store.put_bytes(BUCKET, key, b"")
    assert keys_of(store) == sorted(keys, key=str.encode)
    assert keys_of(store, prefix="a") == ["a", "a-", "a/1", "a0"]
    assert keys_of(store, prefix="a", delimiter="/") == ["a", "a-", "a0"]
    assert keys_of(store, start_after="a/1", limit=2) == ["a0", "b"]
    assert keys_of(store, prefix="a", start_after="zzz") == []


def test_a_list_with_delimiter_jumps_over_what_it_takes_together(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in range(3):
        for number in range(400):
            store.put_bytes(BUCKET, f"{folder}/{number}", b"")
    statements: list[str] = []
    query = store._database.query

    def noted(statement: str, parameters: Sequence[object]) -> list[object]:
        statements.append(statement)
        return query(statement, parameters)

    monkeypatch.setattr(store._database, "query", noted)
    found = list(store.entries(BUCKET, delimiter="/"))
    assert found == [CommonPrefix("0/"), CommonPrefix("1/"), CommonPrefix("2/")]
    assert 3 <= len(statements) <= 6


@settings(max_examples=60, deadline=None)
@given(
    st.sets(
        st.text(alphabet="ab/é\x01\U0001f642", min_size=1, max_size=5).filter(lambda key: key[0] != "/"),
        max_size=15,
    ),
    st.text(alphabet="ab/é", max_size=2),
    st.sampled_from(["", "/", "b", "é/"]),
    st.text(alphabet="ab/é", max_size=3),
)
def test_lists_agree_with_their_definition(
    shared_store: ObjectStore, keys: set[str], prefix: str, delimiter: str, after: str
) -> None:
    shared_store.delete_many(BUCKET, keys_of(shared_store))
    for key in keys:
        shared_store.put_bytes(BUCKET, key, b"")
    expected = set()
    for key in keys:
        end = key.find(delimiter, len(prefix)) if delimiter else -1
        name = key[: end + len(delimiter)] if end >= 0 else key
        if key.startswith(prefix) and name.encode() > after.encode():
            expected.add(name)
    found = [
        entry.prefix if isinstance(entry, CommonPrefix) else entry.key
        for entry in shared_store.entries(BUCKET, prefix=prefix, delimiter=delimiter, after=after)
    ]
    assert found == sorted(expected, key=str.encode)


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory):
    with open_store(tmp_path_factory.mktemp("shared")) as made:
        made.create_bucket(BUCKET)
        yield made


def test_only_one_at_a_time_may_use_a_folder(store: ObjectStore, tmp_path: Path) -> None:
    with refused(ServiceStartError):
        open_store(tmp_path / "store")
    store.close()
    with open_store(tmp_path / "store") as again:
        assert again.bucket_exists(BUCKET)


def test_a_program_that_is_just_being_started_holds_no_folder(store: ObjectStore, tmp_path: Path) -> None:
    """Until it is another program, a process that was forked has all that its parent had open, the lock too."""
    lock = (tmp_path / "store" / "lock").stat()
    descriptors = [int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
    as_in_a_fork = os.dup(next(each for each in descriptors if os.path.samestat(os.fstat(each), lock)))
    try:
        store.close()
        with open_store(tmp_path / "store") as again:
            assert again.bucket_exists(BUCKET)
    finally:
        os.close(as_in_a_fork)


def test_a_folder_that_cannot_be_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with refused(ServiceStartError):
        ObjectStore(tmp_path / "file" / "store")


def test_what_a_dead_process_left_is_swept_away_and_nothing_else(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_bucket(BUCKET)
        for number in range(20):
            store.put_bytes(BUCKET, f"k{number}", large(b"kept"))
        kept = set(blob_files(store))
    for orphan in ("blobs/ab/" + "ab" * 16, "blobs/00/" + "00" * 16, "incoming/" + "cd" * 16):
        (tmp_path / orphan).write_bytes(b"left over")
    with open_store(tmp_path) as store:
        store.put_bytes(BUCKET, "new", large(b"kept"))
        until(lambda: len(blob_files(store)) <= 21)
        assert len(set(blob_files(store)) - kept) == 1
        assert [content_of(store, key) for key in keys_of(store)] == [large(b"kept")] * 21


@pytest.mark.parametrize("method", ["join", "fill"])
@pytest.mark.parametrize("own", [True, False])
def test_a_part_that_comes_again_while_the_object_is_made_spoils_nothing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, method: str, own: bool
) -> None:
    """As when two processes go on with one upload, and one of them is done first."""
    upload_id = store.uploads.start(BUCKET, "k", content_type="text/x", headers={})

    def send(number: int) -> None:
        with store.uploads.part_writer(BUCKET, "k", upload_id, number, None if own else 200_000) as writer:
            writer.write(b"%d" % number * 200_000)
            store.uploads.add_part(writer, BUCKET, "k", upload_id, number)

    act, left = getattr(BlobFolder, method), [1, 2, 2, 1]

    def act_late(blobs: BlobFolder, *given: object) -> object:
        if left:
            send(left.pop())
        return act(blobs, *given)

    for number in (1, 2):
        send(number)
    if method == "join":
        monkeypatch.setattr(BlobFolder, "fill", lambda *_: False)
    monkeypatch.setattr(BlobFolder, method, act_late)
    store.uploads.complete(BUCKET, "k", upload_id)
    assert content_of(store, "k") == b"1" * 200_000 + b"2" * 200_000
    assert not own or left == []  # a file that is shared stays there for those that read it
    assert count_contents(store) == 1
