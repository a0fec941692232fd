"""Parts that are written to their places in one file: the object is that file, and is never another content."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pai_sdk._service.oss.blobs import BlobFolder, BlobWriter
from pai_sdk._service.oss.multipart import MIN_PART_BYTES
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk.errors import StorageError
from tests.service.objects.contents import blob_files
from tests.service.objects.serving import BUCKET
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until

PARTS = [bytes([number]) * MIN_PART_BYTES for number in range(1, 5)]
END = b"the end"


class Upload:
    """An upload in parts to one key."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.id = store.uploads.start(BUCKET, "k", content_type="", headers={})

    def writer(self, number: int, size_bytes: int | None) -> BlobWriter:
        return self.store.uploads.part_writer(BUCKET, "k", self.id, number, size_bytes)

    def add(self, writer: BlobWriter, number: int) -> None:
        self.store.uploads.add_part(writer, BUCKET, "k", self.id, number)

    def send(self, number: int, content: bytes, *, size_known: bool = True) -> None:
        with self.writer(number, len(content) if size_known else None) as writer:
            writer.write(content)
            self.add(writer, number)

    def send_all(self) -> None:
        for number, content in enumerate([*PARTS, END], start=1):
            self.send(number, content)

    def complete(self, listed: list[int] | None = None, **options: bool) -> None:
        parts = {part.number: part.etag for part in self.store.uploads.parts(BUCKET, "k", self.id)}
        chosen = None if listed is None else [(number, parts[number]) for number in listed]
        self.store.uploads.complete(BUCKET, "k", self.id, chosen, **options)

    def content(self) -> bytes:
        with self.store.open(BUCKET, "k") as stream:
            return stream.read()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path / "objects") as store:
        store.create_bucket(BUCKET)
        yield store


@pytest.fixture
def upload(store: ObjectStore) -> Upload:
    return Upload(store)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How objects were made: `fill` keeps the file of the parts, `join` copies them."""
    made: list[str] = []
    for name in ("fill", "join"):
        act: Callable[..., object] = getattr(BlobFolder, name)

        def noted(*given: object, name: str = name, act: Callable[..., object] = act) -> object:
            made.append(name)
            return act(*given)

        monkeypatch.setattr(BlobFolder, name, noted)
    return made


def test_parts_are_not_copied(upload: Upload, copied: list[str]) -> None:
    upload.send_all()
    assert len(blob_files(upload.store)) == 2  # one for the end, which is shorter
    inode = {path.stat().st_ino for path in blob_files(upload.store)}
    upload.complete()
    assert upload.content() == b"".join(PARTS) + END
    (file,) = blob_files(upload.store)
    assert file.stat().st_ino in inode
    assert copied == ["fill"]
    upload.store.delete(BUCKET, "k")
    assert blob_files(upload.store) == []


@pytest.mark.parametrize("order", [[4, 3, 2, 1], [2, 4, 1, 3], [5, 1, 2, 3, 4]])
def test_parts_may_come_in_any_order(upload: Upload, order: list[int]) -> None:
    contents = [*PARTS, END]
    for number in order:
        upload.send(number, contents[number - 1])
    upload.complete(sorted(order))
    assert upload.content() == b"".join(contents[: max(order)])
    assert len(blob_files(upload.store)) == 1


def test_a_part_that_comes_again_replaces_the_first(upload: Upload) -> None:
    upload.send_all()
    for number in (1, 3, 3):
        upload.send(number, b"%d" % number * MIN_PART_BYTES)
    upload.complete()
    assert upload.content() == b"1" * MIN_PART_BYTES + PARTS[1] + b"3" * MIN_PART_BYTES + PARTS[3] + END
    assert len(blob_files(upload.store)) == 1


@pytest.mark.parametrize("listed", [[1, 2, 4, 5], [2, 3], [1, 2], [5]])
def test_some_of_the_parts_are_taken(upload: Upload, listed: list[int]) -> None:
    upload.send_all()
    upload.complete(listed)
    assert upload.content() == b"".join([*PARTS, END][number - 1] for number in listed)
    assert len(blob_files(upload.store)) == 1


def test_an_object_that_must_not_be_replaced_leaves_the_parts_as_they_are(upload: Upload) -> None:
    upload.send_all()
    upload.store.put_bytes(BUCKET, "k", b"first")
    for listed in (None, [1, 2], [1, 5], [1, 3, 4, 5]):
        with pytest.raises(StorageError) as caught:
            upload.complete(listed, forbid_overwrite=True)
        assert caught.value.code == "FileAlreadyExists"
    upload.send(6, b"one more")
    upload.send(2, PARTS[0])
    upload.complete([1, 2, 3, 4, 6])
    assert upload.content() == PARTS[0] * 2 + PARTS[2] + PARTS[3] + b"one more"
    assert len(blob_files(upload.store)) == 1


def test_a_request_that_still_writes_never_changes_the_object(upload: Upload, copied: list[str]) -> None:
    """Its client has given up, sent the part again, and completed the upload."""
    upload.send(1, PARTS[0])
    with upload.writer(2, MIN_PART_BYTES) as slow:
        slow.write(b"?" * 90_000)
        upload.send(2, PARTS[1])
        upload.send(3, PARTS[2])
        upload.complete()
        slow.write(b"?" * (MIN_PART_BYTES - 90_000))
        with pytest.raises(StorageError) as caught:
            upload.add(slow, 2)
    assert caught.value.code == "NoSuchUpload"
    assert upload.content() == b"".join(PARTS[:3])
    assert copied == ["join"]
    assert len(blob_files(upload.store)) == 1


def test_two_writers_of_one_part_write_to_two_places(upload: Upload) -> None:
    with upload.writer(1, MIN_PART_BYTES) as one, upload.writer(1, MIN_PART_BYTES) as two:
        for _ in range(2):
            one.write(b"1" * (MIN_PART_BYTES // 2))
            two.write(b"2" * (MIN_PART_BYTES // 2))
        upload.add(two, 1)
        upload.add(one, 1)
    upload.complete()
    assert upload.content() == b"1" * MIN_PART_BYTES
    assert len(blob_files(upload.store)) == 1


def test_a_part_that_breaks_off_costs_no_other_part(upload: Upload, copied: list[str]) -> None:
    upload.send(1, PARTS[0])
    upload.send(3, PARTS[2])
    with upload.writer(2, MIN_PART_BYTES) as broken:
        broken.write(b"?" * 70_000)
    with (
        upload.writer(2, MIN_PART_BYTES) as long,
        refused(StorageError),
    ):
        long.write(b"?" * (MIN_PART_BYTES + 1))
    upload.send(2, PARTS[1])
    upload.complete()
    assert upload.content() == b"".join(PARTS[:3])
    assert copied == ["fill"]


def test_parts_outlive_the_process(store: ObjectStore, tmp_path: Path, copied: list[str]) -> None:
    upload = Upload(store)
    for number in (1, 2):
        upload.send(number, PARTS[number - 1])
    with upload.writer(4, MIN_PART_BYTES) as unfinished:
        unfinished.write(b"?" * 70_000)
    store.close()
    with ObjectStore(tmp_path / "objects") as again:
        upload.store = again
        assert [part.number for part in again.uploads.parts(BUCKET, "k", upload.id)] == [1, 2]
        for number in (3, 4):
            upload.send(number, PARTS[number - 1])
        upload.complete()
        assert upload.content() == b"".join(PARTS)
        assert len(blob_files(again)) == 1
    assert copied == ["fill"]


def test_a_part_that_is_cut_off_on_the_disk_is_lost_alone(store: ObjectStore, tmp_path: Path) -> None:
    upload = Upload(store)
    for number in (1, 2):
        upload.send(number, PARTS[number - 1])
    (file,) = blob_files(store)
    os.truncate(file, 2 * MIN_PART_BYTES - 1)
    with pytest.raises(StorageError) as caught:
        upload.complete()
    assert caught.value.code == "InvalidPart"
    store.close()
    with ObjectStore(tmp_path / "objects") as again:
        upload.store = again
        until(lambda: [part.number for part in again.uploads.parts(BUCKET, "k", upload.id)] == [1])
        upload.send(2, PARTS[1])
        upload.complete()
        assert upload.content() == PARTS[0] + PARTS[1]


@pytest.mark.parametrize("opened", [False, True])
def test_nothing_is_left_of_an_upload_that_is_aborted(upload: Upload, opened: bool) -> None:
    upload.send_all()
    with upload.writer(6, MIN_PART_BYTES) as slow:
        if opened:
            slow.write(b"?" * 70_000)
        upload.store.uploads.abort(BUCKET, "k", upload.id)
        assert blob_files(upload.store) == []
        if not opened:
            with pytest.raises(StorageError):
                slow.write(b"?" * 70_000)
    assert blob_files(upload.store) == []
    with pytest.raises(StorageError):
        upload.writer(7, MIN_PART_BYTES)
    assert upload.store.uploads._shared == {}


def test_a_request_with_another_key_ends_nothing(upload: Upload, copied: list[str]) -> None:
    upload.send(1, PARTS[0])
    for act in (
        lambda: upload.store.uploads.complete(BUCKET, "other", upload.id),
        lambda: upload.store.uploads.part_writer(BUCKET, "other", upload.id, 2, 5),
        lambda: upload.store.uploads.abort(BUCKET, "other", upload.id),
    ):
        with pytest.raises(StorageError) as caught:
            act()
        assert caught.value.code == "NoSuchUpload"
    upload.send(2, PARTS[1])
    assert len(blob_files(upload.store)) == 1
    upload.complete()
    assert (upload.content(), copied) == (PARTS[0] + PARTS[1], ["fill"])


def test_two_that_complete_at_once_make_one_object(upload: Upload) -> None:
    for _ in range(10):
        upload.__init__(upload.store)  # type: ignore[misc]
        upload.send_all()
        errors: list[str] = []

        etags = [(part.number, part.etag) for part in upload.store.uploads.parts(BUCKET, "k", upload.id)]

        def complete(count: int, errors: list[str] = errors, etags: list[tuple[int, str]] = etags) -> None:
            try:
                upload.store.uploads.complete(BUCKET, "k", upload.id, etags[:count])
            except StorageError as error:
                errors.append(error.code)

        threads = [threading.Thread(target=complete, args=(count,)) for count in (5, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert errors in ([], ["NoSuchUpload"])
        assert upload.content() in (b"".join(PARTS) + END, b"".join(PARTS))
        assert upload.store.head(BUCKET, "k").size_bytes == len(upload.content())
        assert len(blob_files(upload.store)) == 1


@pytest.mark.parametrize("seed", range(12))
def test_whatever_comes_in_whatever_order_the_object_is_what_was_taken(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sent: dict[int, bytes] = {}
    with ExitStack() as slow:
        store = ObjectStore(tmp_path / "objects")
        store.create_bucket(BUCKET)
        store.put_bytes(BUCKET, "k", b"first")
        upload = Upload(store)
        for _ in range(30):
            number = chance.randint(1, 7)
            content = chance.randbytes(MIN_PART_BYTES + chance.choice([0, 0, 0, 0, 1, 90_000]))
            step = chance.choice(["send", "send", "send", "send", "break off", "slow", "try", "restart"])
            if step == "send":
                upload.send(number, content, size_known=chance.random() < 0.9)
                sent[number] = content
            elif step == "restart":
                slow.pop_all().close()
                store.close()
                upload.store = store = ObjectStore(tmp_path / "objects")
            elif step == "try":
                taken = sorted(chance.sample(sorted(sent), chance.randint(1, len(sent)))) if sent else [1]
                with pytest.raises((StorageError, KeyError)):
                    upload.complete(taken, forbid_overwrite=True)
            else:
                writer = upload.writer(number, len(content))
                writer.write(bytes(70_000))
                if step == "slow" and chance.random() < 0.3:
                    slow.callback(writer.discard)
                else:
                    writer.discard()
        taken = sorted(chance.sample(sorted(sent), chance.randint(1, len(sent))))
        taken = sorted(sent) if chance.random() < 0.6 else taken
        upload.complete(taken)
        assert upload.content() == b"".join(sent[number] for number in taken)
    # What a writer left before a restart is removed by the sweep, which runs in the background.
    until(lambda: len(blob_files(store)) == 1, "the sweep")
    store.close()
    with ObjectStore(tmp_path / "objects") as upload.store:
        assert upload.content() == b"".join(sent[number] for number in taken)
