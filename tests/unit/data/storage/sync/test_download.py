"""A download takes what is there already, goes on where it was cut off, and says what stands in its way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oss2.utils import Crc64

from pai_sdk._data.storage import crc64, progress
from pai_sdk._data.storage.objects import ObjectInfo, PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.partial_file import PartialFile
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import FileChangedError, InvalidInputError, PathConflictError, StorageError, TransferError
from tests.support.fake_oss import FakeOss, Seen, StoredObject
from tests.support.messages import refused
from tests.support.waiting import until
from tests.unit.data.storage.conftest import BUCKET

pytestmark = pytest.mark.interpreter

PART = 1 << 16
SIZE = 10 * PART - 5
LARGE = OssUri(BUCKET, "run/large")


@pytest.fixture(autouse=True)
def small_parts(client: OssClient) -> None:
    client.part_sizes = PartSizes(PART, 2 * PART)


@pytest.fixture
def content(oss: FakeOss) -> bytes:
    """A large object that came in parts."""
    content = os.urandom(SIZE)
    put(oss, content)
    return content


def put(oss: FakeOss, content: bytes) -> None:
    etag = f"{hashlib.md5(content).hexdigest().upper()}-7"
    meta = {"x-oss-meta-pai-sha256": hashlib.sha256(content).hexdigest()}
    oss.buckets[BUCKET][LARGE.key] = StoredObject(content, meta, kind="Multipart", etag=etag)


def from_range(number: int) -> Callable[[Seen], bool]:
    def fits(seen: Seen) -> bool:
        first = seen.headers.get("range", "bytes=-1-").removeprefix("bytes=").partition("-")[0]
        return first.isdigit() and int(first) >= number * PART

    return fits


def cut_off(client: OssClient, oss: FakeOss, target: Path) -> None:
    """Try, over a line that breaks for good at the fifth range, as soon as those before it are under way."""
    is_behind = from_range(4)

    def others_first(seen: Seen) -> None:
        if is_behind(seen):
            until(lambda: {0, 1, 2, 3} <= set(ranges(oss)))

    oss.before = others_first
    oss.fail("reset", times=999, fits=is_behind)
    with refused(TransferError):
        download(client, LARGE, target, workers=2)
    assert not target.exists()
    oss.before = lambda seen: None
    oss.faults.clear()
    oss.seen.clear()


def ranges(oss: FakeOss) -> list[int]:
    return sorted(
        int(seen.headers["range"].removeprefix("bytes=").partition("-")[0]) // PART
        for seen in [*oss.seen]
        if "range" in seen.headers
    )


def test_what_has_arrived_is_not_fetched_again(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path
) -> None:
    target = tmp_path / "large"
    cut_off(client, oss, target)
    download(client, LARGE, target)
    assert ranges(oss) == [4, 5, 6, 7, 8, 9]
    assert target.read_bytes() == content
    assert list(tmp_path.iterdir()) == [target]


def test_ranges_that_were_spoilt_are_fetched_again(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path
) -> None:
    cut_off(client, oss, tmp_path / "large")
    (part,) = tmp_path.glob("*.part")
    with part.open("r+b") as file:  # as after a loss of power: noted, and yet not on the disk
        file.seek(PART)
        file.write(b"\0" * 100)
    download(client, LARGE, tmp_path / "large")
    assert ranges(oss) == [1, 4, 5, 6, 7, 8, 9]
    assert (tmp_path / "large").read_bytes() == content


@pytest.mark.parametrize("notes", ["", "garbage\n0 0\n", None, "ä"])
def test_without_its_notes_all_is_fetched_again(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path, notes: str | None
) -> None:
    cut_off(client, oss, tmp_path / "large")
    (path,) = tmp_path.glob("*.done")
    path.unlink() if notes is None else path.write_text(notes)
    download(client, LARGE, tmp_path / "large")
    assert ranges(oss) == [*range(10)]
    assert (tmp_path / "large").read_bytes() == content


def test_a_note_that_was_cut_off_is_not_believed(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path
) -> None:
    cut_off(client, oss, tmp_path / "large")
    (path,) = tmp_path.glob("*.done")
    path.write_bytes(path.read_bytes()[:-3])
    download(client, LARGE, tmp_path / "large")
    assert len(ranges(oss)) == 7
    assert (tmp_path / "large").read_bytes() == content


def test_another_object_is_not_mixed_with_what_is_there(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path
) -> None:
    cut_off(client, oss, tmp_path / "large")
    changed = os.urandom(SIZE)
    put(oss, changed)
    download(client, LARGE, tmp_path / "large")
    assert ranges(oss) == [*range(10)]
    assert (tmp_path / "large").read_bytes() == changed
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_two_at_once_do_not_share_a_file(client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path) -> None:
    info = client.head(LARGE)
    assert isinstance(info, ObjectInfo)
    with PartialFile(tmp_path / "large", info, PART) as mine:
        download(client, LARGE, tmp_path / "large")
        assert (tmp_path / "large").read_bytes() == content
        assert mine.path.stat().st_size == 0
        mine.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_a_disk_that_takes_less_than_it_is_given(
    client: OssClient, oss: FakeOss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(SIZE)  # without any checksum, as a part-wise upload by another tool leaves it
    oss.buckets[BUCKET][LARGE.key] = StoredObject(content, kind="Multipart", etag="A" * 32 + "-7")
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, part, at: write(file, part[: max(1, len(part) // 2)], at))
    download(client, LARGE, tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == content


def test_a_full_disk_leaves_nothing_open_or_half_done(
    client: OssClient, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)  # the notes
        with refused(TransferError):
            download(client, LARGE, tmp_path / "large")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with refused(TransferError):
            download(client, LARGE, tmp_path / "large")
    assert list(tmp_path.iterdir()) == []
    info = client.head(LARGE)
    assert isinstance(info, ObjectInfo)
    with PartialFile(tmp_path / "large", info, PART) as part:  # the lock is free
        assert len(list(tmp_path.glob("*.done"))) == 1
        part.discard()


def test_a_folder_that_vanishes_is_named(client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path) -> None:
    target = tmp_path / "down" / "large"

    def vanish(seen: Seen) -> None:
        if seen.method == "HEAD" and target.parent.exists():
            target.parent.rmdir()

    oss.before = vanish
    with refused(TransferError):
        download(client, OssUri(BUCKET, "run/"), target.parent)


def test_the_bar_begins_at_what_is_there(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(client, oss, tmp_path / "large")
    steps: list[int] = []
    monkeypatch.setattr(progress.ByteBar, "advance", lambda bar, size_bytes: steps.append(size_bytes))
    download(client, LARGE, tmp_path / "large")
    assert steps[0] == 4 * PART
    assert sum(steps) == SIZE


@pytest.mark.parametrize("has_crc64", [True, False])
@pytest.mark.parametrize(("wrong", "arrives"), [(1, True), (2, True), (3, False)])
def test_a_large_object_that_arrives_wrong_is_fetched_again(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path, wrong: int, arrives: bool, has_crc64: bool
) -> None:
    oss.has_crc64 = has_crc64
    oss.fail("corrupt", times=wrong, fits=lambda seen: seen.headers.get("range", "").startswith("bytes=0-"))
    if arrives:
        download(client, LARGE, tmp_path / "large")
        assert (tmp_path / "large").read_bytes() == content
    else:
        with refused(TransferError):
            download(client, LARGE, tmp_path / "large")
        assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_fetched_again(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path
) -> None:
    oss.buckets[BUCKET] |= {f"run/small{number}": StoredObject(b"%d" % number * 100) for number in range(20)}
    sha256 = hashlib.sha256(b"copied").hexdigest()
    oss.buckets[BUCKET]["run/copied"] = StoredObject(b"copied", {"x-oss-meta-pai-sha256": sha256}, etag="A" * 32)
    folder = OssUri(BUCKET, "run/")
    download(client, folder, tmp_path)
    (tmp_path / "small3").write_bytes(b"9" * 100)
    (tmp_path / "small5").write_bytes(b"5")
    (tmp_path / "small7").unlink()
    for name in ("small3", "small5"):
        os.utime(tmp_path / name, (2e9, 2e9))
    oss.seen.clear()
    download(client, folder, tmp_path)
    assert sorted({seen.key for seen in oss.seen if seen.method == "GET" and seen.key}) == [
        "run/small3",
        "run/small5",
        "run/small7",
    ]
    assert {(tmp_path / f"small{n}").read_bytes() for n in range(20)} == {b"%d" % n * 100 for n in range(20)}
    oss.seen.clear()
    download(client, folder, tmp_path, skip_unchanged=False)
    assert len({seen.key for seen in oss.seen if seen.method == "GET" and seen.key}) == 22


def test_a_link_to_the_same_content_is_replaced(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    oss.buckets[BUCKET]["run/file"] = StoredObject(b"same")
    (tmp_path / "other").write_bytes(b"same")
    (tmp_path / "file").symlink_to(tmp_path / "other")
    download(client, OssUri(BUCKET, "run/file"), tmp_path / "file")
    assert not (tmp_path / "file").is_symlink()


def test_a_file_in_the_place_of_a_folder(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    oss.buckets[BUCKET] |= {"run/a/b": StoredObject(b"1"), "run/c": StoredObject(b"2")}
    (tmp_path / "file").write_bytes(b"mine")
    for uri, target in (("run/", "file"), ("run/", "file/deeper"), ("run/c", "file/c")):
        with refused(PathConflictError):
            download(client, OssUri(BUCKET, uri), tmp_path / target)
    (tmp_path / "down").mkdir()
    (tmp_path / "down" / "a").write_bytes(b"mine")
    with refused(TransferError) as caught:
        download(client, OssUri(BUCKET, "run/"), tmp_path / "down")
    assert {path: type(error) for path, error in caught.value.failures.items()} == {"a/b": PathConflictError}
    assert (tmp_path / "down" / "c").read_bytes() == b"2"
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_a_folder_in_the_place_of_a_file(client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path) -> None:
    oss.buckets[BUCKET]["run/small"] = StoredObject(b"1")
    for name in ("small", "large"):
        (tmp_path / name / "mine").mkdir(parents=True)
    with refused(TransferError) as caught:
        download(client, OssUri(BUCKET, "run/"), tmp_path)
    for name in ("small", "large"):
        says = f"{tmp_path / name} is a folder, but a file is needed there; move the folder away"
        assert str(caught.value.failures[name]) == says
        assert isinstance(caught.value.failures[name], PathConflictError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large", "small"]


def test_a_folder_that_cannot_be_written_to_is_one_error(
    client: OssClient, oss: FakeOss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oss.buckets[BUCKET] |= {f"run/{number}": StoredObject(b"1") for number in range(30)}
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
        with refused(StorageError) as caught:
            download(client, OssUri(BUCKET, "run/"), tmp_path)
    assert not isinstance(caught.value, TransferError)
    name = "n" * 256
    with refused(StorageError):
        download(client, OssUri(BUCKET, "run/"), tmp_path / name)
    with refused(TransferError):
        download(client, OssUri(BUCKET, "run/1"), tmp_path / name)


@pytest.mark.parametrize("blind", [True, False])
def test_names_that_the_disk_takes_for_one_are_told(
    client: OssClient, oss: FakeOss, tmp_path: Path, blind: bool
) -> None:
    names = ["README", "Readme", "caf\u00e9", "cafe\u0301", "sub/a"]
    oss.buckets[BUCKET] |= {f"run/{name}": StoredObject(name.encode()) for name in names}
    target = tmp_path / "down"
    target.mkdir()
    if not blind:
        download(client, OssUri(BUCKET, "run/"), target)
        assert {str(path.relative_to(target)) for path in target.rglob("*")} == {*names, "sub"}
        return
    (tmp_path / "DOWN").symlink_to("down")  # what such a disk looks like from outside
    with pytest.raises(TransferError) as caught:
        download(client, OssUri(BUCKET, "run/"), target)
    failures = {name: str(error) for name, error in caught.value.failures.items()}
    for pair in ({"README", "Readme"}, {"caf\u00e9", "cafe\u0301"}):  # files are written beside each other
        (refused,) = pair & failures.keys()
        (kept,) = pair - {refused}
        assert failures[refused] == f"this disk cannot tell its name from {kept!r}, so it was not written"
        assert (target / kept).read_text() == kept


def test_files_are_moved_by_hand(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "a.txt").write_bytes(b"1")
    (tmp_path / "src" / "sub" / "b.txt").write_bytes(b"2")
    assert upload(client, tmp_path / "src", OssUri(BUCKET, "data")) == OssUri(BUCKET, "data/")
    assert upload(client, tmp_path / "src" / "a.txt", OssUri(BUCKET, "one/")) == OssUri(BUCKET, "one/a.txt")
    assert upload(client, str(tmp_path / "src" / "a.txt"), OssUri(BUCKET, "one/x")) == OssUri(BUCKET, "one/x")
    assert {key: found.content for key, found in oss.buckets[BUCKET].items()} == {
        "data/a.txt": b"1",
        "data/sub/b.txt": b"2",
        "one/a.txt": b"1",
        "one/x": b"1",
    }


def test_what_cannot_be_uploaded_is_told(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    with refused(InvalidInputError):
        upload(client, tmp_path, OssUri(BUCKET, "data/"))
    with refused(InvalidInputError):
        upload(client, tmp_path / "missing", OssUri(BUCKET, "data/"))
    (tmp_path / "file").write_bytes(b"1")
    oss.fail("status", status=403, code="AccessDenied")
    with refused(TransferError):
        upload(client, tmp_path / "file", OssUri(BUCKET, "data/"))


def test_a_key_that_cannot_be_a_file_stops_no_other(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    wrong = ["..", ".", "/top", "\\x", "a//b", "a/../b", "a/./b"]
    oss.buckets[BUCKET] |= {key: StoredObject(b"1") for key in [*wrong, "a/right", "z"]}
    with refused(TransferError) as caught:
        download(client, OssUri(BUCKET), tmp_path / "down")
    assert sorted(caught.value.failures) == sorted(wrong)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert files == [tmp_path / "down" / "a" / "right", tmp_path / "down" / "z"]


def test_a_bucket_of_nothing_but_such_a_key(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    oss.buckets[BUCKET][".."] = StoredObject(b"1")
    with refused(TransferError):
        download(client, OssUri(BUCKET), tmp_path / "down")


def test_what_only_has_a_crc64_is_checked_by_it(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    """As an object that another tool sent in parts: OSS knows its CRC-64, but neither MD5 nor SHA-256."""
    content = os.urandom(SIZE)
    expected = Crc64()
    expected.update(content)
    meta = {"x-oss-hash-crc64ecma": str(expected.crc)}
    oss.buckets[BUCKET] |= {
        "run/large": StoredObject(content, meta, kind="Multipart", etag="A" * 32 + "-7"),
        "run/small": StoredObject(
            b"123456789", {"x-oss-hash-crc64ecma": str(0x995DC9BBDF1939FA)}, "Multipart", "B-1"
        ),
    }
    oss.fail("corrupt", times=1, fits=lambda seen: seen.key == "run/small")
    oss.fail("corrupt", times=1, fits=lambda seen: "range" in seen.headers)
    download(client, OssUri(BUCKET, "run/"), tmp_path)
    assert (tmp_path / "large").read_bytes() == content
    assert (tmp_path / "small").read_bytes() == b"123456789"


def test_bytes_with_another_crc64_are_refused(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    oss.buckets[BUCKET]["run/small"] = StoredObject(b"1", {"x-oss-hash-crc64ecma": "1"}, "Multipart", "B-1")
    with pytest.raises(TransferError):
        download(client, OssUri(BUCKET, "run/small"), tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_nothing_is_read_that_was_just_written(
    client: OssClient, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", lambda file, size_bytes, at: pytest.fail("read again"))
    download(client, LARGE, tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == content


@pytest.fixture
def without_anycrc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which CRC-64 cannot be computed."""
    monkeypatch.setattr(crc64, "_model", _no_anycrc)
    monkeypatch.setattr(crc64, "_first_error", threading.Lock())
    crc64.has_crc64.cache_clear()
    yield
    crc64.has_crc64.cache_clear()


def _no_anycrc() -> None:
    raise ImportError("No module named 'anycrc'")


@pytest.mark.usefixtures("without_anycrc")
def test_without_anycrc_other_checksums_are_compared(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    oss.buckets[BUCKET]["run/small"] = StoredObject(b"1")
    oss.fail("corrupt", times=2)
    cut_off(client, oss, tmp_path / "large")
    download(client, OssUri(BUCKET, "run/"), tmp_path)
    assert ranges(oss) == [4, 5, 6, 7, 8, 9]
    assert (tmp_path / "large").read_bytes() == content
    assert (tmp_path / "small").read_bytes() == b"1"
    assert len([record for record in caplog.records if "anycrc" in record.message]) == 1


def test_notes_of_an_earlier_release_are_not_misread(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path
) -> None:
    """They had the CRC-32 of each range, and did not say so."""
    cut_off(client, oss, tmp_path / "large")
    (path,) = tmp_path.glob("*.done")
    header = json.loads(path.read_text().splitlines()[0])[:4]
    rows = [f"{n * PART} {zlib.crc32(content[n * PART : (n + 1) * PART])}" for n in range(4)]
    path.write_text("\n".join([json.dumps(header), *rows, ""]))
    download(client, LARGE, tmp_path / "large")
    assert ranges(oss) == [*range(10)]
    assert (tmp_path / "large").read_bytes() == content


def test_a_store_that_ignores_ranges_is_told(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path
) -> None:
    oss.ignores_ranges = True
    with refused(TransferError):
        download(client, LARGE, tmp_path / "large", workers=1)
    # Each answer is the complete object, so none is asked for twice.
    assert len(ranges(oss)) == len({*ranges(oss)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["truncate", "lost", "reset"])
def test_a_range_that_ends_early_is_fetched_again(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path, kind: str
) -> None:
    oss.fail(kind, times=2, fits=from_range(5))
    download(client, LARGE, tmp_path / "large")
    assert len(ranges(oss)) == 12
    assert (tmp_path / "large").read_bytes() == content


@pytest.mark.parametrize("times", [1, 99])
def test_an_object_that_is_replaced_meanwhile(
    client: OssClient, oss: FakeOss, content: bytes, tmp_path: Path, times: int
) -> None:
    """No file is of two versions: it is fetched anew, and an object that never rests is an error."""
    versions = [os.urandom(SIZE) for _ in range(times)]

    def replace(seen: Seen) -> None:
        if from_range(4)(seen) and versions:
            put(oss, versions.pop())

    oss.before = replace
    if times == 1:
        download(client, LARGE, tmp_path / "large", workers=1)
        assert (tmp_path / "large").read_bytes() == oss.buckets[BUCKET][LARGE.key].content != content
    else:
        with refused(TransferError) as caught:
            download(client, LARGE, tmp_path / "large", workers=1)
        assert isinstance(caught.value.failures["large"], FileChangedError)
        assert list(tmp_path.iterdir()) == []
