"""A large upload that was cut off goes on where it was, and never mixes what does not belong together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pai_sdk._data.storage import progress
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import upload_tree
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError, StorageError, TransferError
from tests.support.fake_oss import FakeOss, Seen, StoredObject
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until
from tests.unit.data.storage.conftest import BUCKET

FOLDER = OssUri(BUCKET, "run/")
PART = 1 << 16
SIZE = 10 * PART - 5


@pytest.fixture(autouse=True)
def small_parts(client: OssClient) -> None:
    client.part_sizes = PartSizes(PART)


@pytest.fixture
def tree(tmp_path: Path) -> FileTree:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "large").write_bytes(os.urandom(SIZE))
    return FileTree.scan(tmp_path / "src")


def send(client: OssClient, tree: FileTree) -> None:
    upload_tree(client, tree, FOLDER, progress=False, marker=False, workers=2)


def fail_from(oss: FakeOss, first: int, kind: str, **details: object) -> None:
    """Fail that part and those behind it when all before it have arrived; a transfer that fails begins no more."""

    def is_behind(seen: Seen) -> bool:
        return int(seen.query.get("partNumber", 0)) >= first

    def others_first(seen: Seen) -> None:
        if is_behind(seen):
            until(lambda: sum(len(parts) for _, _, parts in [*oss.uploads.values()]) == first - 1)

    oss.before = others_first
    oss.fail(kind, times=999, fits=is_behind, **details)


def mend(oss: FakeOss) -> None:
    """Let everything pass again, and forget what was seen."""
    oss.before = lambda seen: None
    oss.faults.clear()
    oss.seen.clear()


def cut_off(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    """Try, over a line that breaks for good at the fifth part."""
    fail_from(oss, 5, "reset")
    with pytest.raises(TransferError, match="1 of 1 files were not uploaded"):
        send(client, tree)
    mend(oss)


def parts_sent(oss: FakeOss) -> list[int]:
    return sorted({int(seen.query["partNumber"]) for seen in oss.seen if "partNumber" in seen.query})


def is_in_place(oss: FakeOss, tree: FileTree) -> bool:
    return oss.buckets[BUCKET]["run/large"].content == (tree.root / "large").read_bytes() and not oss.uploads


def notes(home: Path) -> list[Path]:
    return sorted((home / ".cache" / "pai_sdk" / "uploads").glob("*"))


@pytest.mark.parametrize(("parts_a_page", "has_crc64"), [(1000, True), (3, True), (3, False)])
def test_what_has_arrived_is_not_sent_again(
    client: OssClient, oss: FakeOss, tree: FileTree, clean_home: Path, parts_a_page: int, has_crc64: bool
) -> None:
    oss.parts_a_page, oss.has_crc64 = parts_a_page, has_crc64
    cut_off(client, oss, tree)
    send(client, tree)
    assert parts_sent(oss) == [5, 6, 7, 8, 9, 10]
    assert is_in_place(oss, tree)
    assert notes(clean_home) == []


def test_the_note_is_for_its_owner_and_holds_no_key(
    client: OssClient, oss: FakeOss, tree: FileTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cut_off(client, oss, tree)
    (note,) = (tmp_path / "cache" / "pai_sdk" / "uploads").iterdir()
    assert note.stat().st_mode & 0o777 == 0o600
    assert "key-" not in note.read_text()


def test_a_part_that_differs_is_sent_again(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    cut_off(client, oss, tree)
    ((_, _, parts),) = oss.uploads.values()
    parts[2] = parts[2][:-1] + b"?"
    parts[3] = parts[3][:-1]
    send(client, tree)
    assert parts_sent(oss) == [2, 3, 5, 6, 7, 8, 9, 10]
    assert is_in_place(oss, tree)


def test_a_file_that_has_changed_begins_anew(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    cut_off(client, oss, tree)
    large = tree.root / "large"
    large.write_bytes(large.read_bytes()[:-1] + b"?")
    changed = FileTree.scan(tree.root)
    (old,) = oss.uploads
    send(client, changed)
    assert parts_sent(oss) == [*range(1, 11)]
    assert set(oss.uploads) == {old}
    oss.uploads.clear()
    assert is_in_place(oss, changed)


@pytest.mark.parametrize("gone", ["expired", "not to be listed"])
def test_an_upload_that_is_gone_begins_anew(
    client: OssClient, oss: FakeOss, tree: FileTree, clean_home: Path, gone: str
) -> None:
    cut_off(client, oss, tree)
    if gone == "expired":
        oss.uploads.clear()
    else:
        oss.fail("status", status=403, code="AccessDenied", fits=lambda seen: seen.method == "GET")
    send(client, tree)
    assert parts_sent(oss) == [*range(1, 11)]
    assert is_in_place(oss, tree)
    assert notes(clean_home) == []


@pytest.mark.parametrize("when", ["a part", "the end"])
@pytest.mark.parametrize("made_by_another", [False, True])
def test_an_upload_that_ends_meanwhile(
    client: OssClient, oss: FakeOss, tree: FileTree, when: str, made_by_another: bool
) -> None:
    content = (tree.root / "large").read_bytes()

    def end_once(seen: Seen) -> None:
        is_end = seen.method == "POST" and "uploadId" in seen.query
        if is_end if when == "the end" else seen.query.get("partNumber") == "7":
            oss.before = lambda seen: None
            oss.uploads.clear()
            if made_by_another:
                oss.buckets[BUCKET]["run/large"] = StoredObject(content, kind="Multipart")

    oss.before = end_once
    send(client, tree)
    assert is_in_place(oss, tree)
    begun = sum("uploads" in seen.query for seen in oss.seen)
    assert begun == (1 if made_by_another else 2)


def test_access_denied_leaves_nothing(client: OssClient, oss: FakeOss, tree: FileTree, clean_home: Path) -> None:
    oss.fail("status", status=403, code="AccessDenied", fits=lambda seen: seen.query.get("partNumber") == "5")
    with refused(TransferError):
        send(client, tree)
    assert oss.uploads == {}
    assert notes(clean_home) == []


def test_a_file_that_changes_meanwhile_leaves_nothing(
    client: OssClient, oss: FakeOss, tree: FileTree, clean_home: Path
) -> None:
    (tree.root / "large").write_bytes(os.urandom(SIZE))
    with refused(TransferError):
        send(client, tree)
    assert (oss.uploads, oss.buckets[BUCKET], notes(clean_home)) == ({}, {}, [])


def one_byte_differs(path: Path) -> None:
    with path.open("r+b") as out:
        out.seek(SIZE - PART)
        byte = out.read(1)
        out.seek(SIZE - PART)
        out.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("change", [one_byte_differs, lambda path: os.truncate(path, SIZE - 1)])
@pytest.mark.parametrize("server", ["plain", "encrypts", "has no CRC-64"])
def test_a_file_that_changes_while_its_parts_are_sent_leaves_nothing(
    client: OssClient, oss: FakeOss, tree: FileTree, clean_home: Path, change: Callable[[Path], None], server: str
) -> None:
    oss.has_crc64 = server != "has no CRC-64"
    oss.is_encrypted = server == "encrypts"

    def when_it_begins(seen: Seen) -> None:
        if "uploads" in seen.query:
            change(tree.root / "large")

    oss.before = when_it_begins
    with refused(TransferError) as caught:
        send(client, tree)
    assert isinstance(caught.value.failures["large"], FileChangedError)
    assert (oss.uploads, oss.buckets[BUCKET], notes(clean_home)) == ({}, {}, [])
    if server == "has no CRC-64":  # each part that is on its way meanwhile goes again, with its MD5
        return
    sent = [seen.query["partNumber"] for seen in oss.seen if "partNumber" in seen.query]
    assert len(sent) == len(set(sent))  # none is tried again


def test_a_part_that_is_damaged_on_the_way_is_sent_again(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    oss.fail("status", status=400, code="InvalidDigest", times=2, fits=lambda seen: "partNumber" in seen.query)
    send(client, tree)
    assert is_in_place(oss, tree)


@pytest.mark.parametrize("has_crc64", [True, False])
def test_a_file_goes_where_parts_are_encrypted(
    client: OssClient, oss: FakeOss, tree: FileTree, has_crc64: bool
) -> None:
    oss.is_encrypted, oss.has_crc64 = True, has_crc64
    send(client, tree)
    assert is_in_place(oss, tree)


def test_a_token_that_expires_is_no_reason_to_begin_anew(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    fail_from(oss, 6, "status", status=403, code="SecurityTokenExpired")
    with refused(StorageError, code="SecurityTokenExpired"):
        send(client, tree)
    mend(oss)
    send(client, tree)
    assert parts_sent(oss) == [6, 7, 8, 9, 10]


def test_a_cache_that_cannot_be_used_is_no_obstacle(
    client: OssClient, oss: FakeOss, tree: FileTree, clean_home: Path
) -> None:
    (clean_home / ".cache").write_text("a file where a folder should be")
    send(client, tree)
    assert is_in_place(oss, tree)


@pytest.mark.parametrize("note", ["", "{}", "[1]", '{"upload_id": 7}', '{"upload_id": "unknown"}', "\0"])
def test_a_spoilt_note_is_no_obstacle(
    client: OssClient, oss: FakeOss, tree: FileTree, clean_home: Path, note: str
) -> None:
    cut_off(client, oss, tree)
    notes(clean_home)[0].write_text(note)
    oss.uploads.clear()
    send(client, tree)
    assert is_in_place(oss, tree)


def test_two_at_once_both_end_right(oss: FakeOss, client: OssClient, tree: FileTree) -> None:
    for resumed in (False, True):
        if resumed:
            cut_off(client, oss, tree)
        together = threading.Barrier(2, timeout=PATIENCE_S)
        errors: list[BaseException] = []

        def run(together: threading.Barrier = together, errors: list[BaseException] = errors) -> None:
            together.wait()
            try:
                send(client, tree)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert is_in_place(oss, tree)


def test_the_bar_begins_at_what_is_there(
    client: OssClient, oss: FakeOss, tree: FileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(client, oss, tree)
    ((_, _, parts),) = oss.uploads.values()
    parts[2] = b"?" * PART
    steps: list[int] = []
    monkeypatch.setattr(progress.ByteBar, "advance", lambda bar, size_bytes: steps.append(size_bytes))
    send(client, tree)
    assert steps[0] == 4 * PART
    assert sum(steps) == SIZE


def test_an_upload_that_another_shares_is_not_taken_from_it(
    client: OssClient, oss: FakeOss, tree: FileTree, clean_home: Path
) -> None:
    """Where OSS encrypts, a part that both send has another ETag for each, and only the last is valid."""
    cut_off(client, oss, tree)
    (shared,) = oss.uploads
    alive: list[bool] = []

    def while_sending(seen: Seen) -> None:
        if seen.query.get("partNumber") and seen.query.get("uploadId") != shared:
            alive.append(shared in oss.uploads)

    oss.before = while_sending
    oss.fail("status", status=400, code="InvalidPart", fits=lambda seen: seen.method == "POST")
    send(client, tree)
    assert is_in_place(oss, tree)
    assert len(alive) == 10
    assert all(alive)
    assert oss.uploads == {}
    assert notes(clean_home) == []
