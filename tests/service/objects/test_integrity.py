"""Content that is not what the index says: written to the disk first, checked when read, dropped when lost."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect, text

from pai_sdk._service.oss.integrity import IntegrityCheck
from pai_sdk._service.oss.multipart import MIN_PART_BYTES
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk.errors import StorageError
from tests.service.objects.contents import blob_files, count_rows, large
from tests.support.messages import refused
from tests.support.waiting import until

BUCKET = "data"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def store(root: Path) -> Iterator[ObjectStore]:
    with ObjectStore(root) as store:
        store.create_bucket(BUCKET)
        yield store


def blob_of(store: ObjectStore, key: str) -> Path:
    return store.path_of_blob(store.head(BUCKET, key).blob)


def in_parts(store: ObjectStore, key: str, *sizes: int, complete: bool = True) -> str:
    """An upload whose parts have these sizes, each with content of its own; returns its id."""
    upload_id = store.uploads.start(BUCKET, key, content_type="x/y", headers={})
    for number, size_bytes in enumerate(sizes, 1):
        with store.writer() as writer:
            writer.write(bytes([number]) * size_bytes)
            store.uploads.add_part(writer, BUCKET, key, upload_id, number)
    if complete:
        store.uploads.complete(BUCKET, key, upload_id)
    return upload_id


def appended(store: ObjectStore, key: str, *pieces: bytes) -> None:
    position = 0
    for piece in pieces:
        with store.writer() as writer:
            writer.write(piece)
            position = store.append(writer, BUCKET, key, position).size_bytes


def flip(path: Path, at: int) -> None:
    """Change one byte, and neither size nor times."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def problem_of(store: ObjectStore, key: str, *, piece_bytes: int = 1000) -> str:
    info, stream = store.open_with_info(BUCKET, key)
    with stream:
        check = IntegrityCheck(info)
        while piece := stream.read(piece_bytes):
            check.update(piece)
    return check.problem()


# ---- written to the disk before the index knows of it


def test_content_is_on_the_disk_in_its_place_before_its_row_is_committed(
    store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[int, int] = {}  # inode to size
    named: set[str] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        status = os.fstat(descriptor)
        fsync(descriptor)
        if stat.S_ISDIR(status.st_mode):
            recorded = {info.blob for info in store.list(BUCKET)}
            new = set(os.listdir(descriptor)) - named
            assert not new & recorded, "its row came before its name"
            named.update(new)
            return
        synced[status.st_ino] = status.st_size
        files = [path for path in (root / "blobs").rglob("*") if path.is_file()]
        names = {path.name for path in files if os.path.samestat(path.stat(), status)}
        recorded = [info for info in store.list(BUCKET) if info.blob in names]
        assert all(info.size_bytes < status.st_size or len(names) > 1 for info in recorded), "its row came first"

    monkeypatch.setattr(os, "fsync", noted)

    def is_on_disk(key: str) -> bool:
        info = store.head(BUCKET, key)
        size_bytes = synced.get(store.path_of_blob(info.blob).stat().st_ino, -1)
        return size_bytes >= info.size_bytes and info.blob in named

    store.put_bytes(BUCKET, "put", large(b"hello"))
    appended(store, "appended", b"a", b"bc")
    in_parts(store, "parts", MIN_PART_BYTES, 5)
    in_parts(store, "one part", 5)
    store.copy(BUCKET, "put", BUCKET, "copy")
    assert [key for key in keys(store) if not is_on_disk(key)] == []
    assert len(keys(store)) == 5


def test_nothing_is_recorded_when_the_disk_does_not_take_the_content(
    store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        store.put_bytes(BUCKET, "put", large(b"hello"))
    assert list(store.list(BUCKET)) == []
    assert [path for path in (root / "blobs").rglob("*") if path.is_file()] == []


# ---- checked when read


@pytest.mark.parametrize("at", [0, MIN_PART_BYTES - 1, MIN_PART_BYTES, MIN_PART_BYTES + 4])
def test_a_changed_byte_is_found(store: ObjectStore, at: int) -> None:
    store.put_bytes(BUCKET, "put", b"x" * (MIN_PART_BYTES + 5))
    in_parts(store, "parts", MIN_PART_BYTES, 5)
    for key in ("put", "parts"):
        assert problem_of(store, key) == ""
        flip(blob_of(store, key), at)
        assert "is not what was stored" in problem_of(store, key)


@pytest.mark.parametrize("sizes", [(5,), (MIN_PART_BYTES,) * 3, (MIN_PART_BYTES, MIN_PART_BYTES + 7, 1)])
@pytest.mark.parametrize("piece_bytes", [1 << 20, MIN_PART_BYTES, 777])
def test_parts_of_any_sizes_are_checked(store: ObjectStore, sizes: tuple[int, ...], piece_bytes: int) -> None:
    in_parts(store, "parts", *sizes)
    assert problem_of(store, "parts", piece_bytes=piece_bytes) == ""
    flip(blob_of(store, "parts"), sum(sizes) - 1)
    assert problem_of(store, "parts", piece_bytes=piece_bytes)


def test_what_was_appended_is_right_with_its_size(store: ObjectStore) -> None:
    appended(store, "log", b"a", b"bc")
    with blob_of(store, "log").open("ab") as file:
        file.write(b"of an append that did not get its row")
    assert problem_of(store, "log") == ""


@pytest.mark.parametrize("left", [0, 4, None])
def test_what_is_cut_off_or_gone_is_not_read(store: ObjectStore, left: int | None) -> None:
    store.put_bytes(BUCKET, "put", large(b"hello"))
    path = blob_of(store, "put")
    if left is None:
        path.unlink()
    else:
        os.truncate(path, left)
    with refused(StorageError, code="ObjectDamaged") as caught:
        store.open(BUCKET, "put")
    assert (caught.value.code, caught.value.status_code) == ("ObjectDamaged", 410)
    with refused(StorageError, code="ObjectDamaged"):
        store.copy(BUCKET, "put", BUCKET, "copy")


def test_no_object_is_made_of_a_part_that_is_cut_off(store: ObjectStore, root: Path) -> None:
    upload_id = in_parts(store, "parts", MIN_PART_BYTES, 5, complete=False)
    part = store.uploads.parts(BUCKET, "parts", upload_id)[0]
    os.truncate(store.path_of_blob(part.blob), 17)
    with pytest.raises(StorageError) as caught:
        store.uploads.complete(BUCKET, "parts", upload_id)
    assert caught.value.code == "InvalidPart"
    assert list(store.list(BUCKET)) == []
    assert sum(path.is_file() for path in (root / "blobs").rglob("*")) == 2  # the parts, and no half object


# ---- dropped at the next start


def content_of(store: ObjectStore, key: str) -> bytes:
    with store.open(BUCKET, key) as stream:
        return stream.read()


def keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list(BUCKET)]


def test_rows_without_their_content_are_dropped_at_the_start(
    store: ObjectStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.put_bytes(BUCKET, "row", b"hello")
    for key in ("cut", "empty", "gone", "whole"):
        store.put_bytes(BUCKET, key, large(b"hello"))
    appended(store, "log", b"hello")
    appended(store, "longer", b"hello")
    in_parts(store, "parts", MIN_PART_BYTES, 5)
    upload_id = in_parts(store, "unfinished", MIN_PART_BYTES, 5, complete=False)
    first, _ = store.uploads.parts(BUCKET, "unfinished", upload_id)
    os.truncate(store.path_of_blob(first.blob), 0)
    for key, left in (("cut", 4), ("empty", 0), ("log", 1), ("parts", MIN_PART_BYTES)):
        os.truncate(blob_of(store, key), left)
    blob_of(store, "gone").unlink()
    with blob_of(store, "longer").open("ab") as file:
        file.write(b"of an append that did not get its row")
    store.close()
    with ObjectStore(root) as again:
        until(lambda: len(again.uploads.parts(BUCKET, "unfinished", upload_id)) == 1)
        until(lambda: keys(again) == ["longer", "row", "whole"])
        until(lambda: "lost" in caplog.text)
        assert "oss://data/cut" in caplog.text
        again.put_bytes(BUCKET, "cut", large(b"hello"))
        with again.open(BUCKET, "cut") as stream:
            assert stream.read() == large(b"hello")
    with ObjectStore(root) as once_more:
        until(lambda: sum(path.is_file() for path in (root / "blobs").rglob("*")) == 4)
        assert keys(once_more) == ["cut", "longer", "row", "whole"]


def test_a_folder_that_is_not_there_costs_no_row(
    store: ObjectStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a disk is not mounted: with its content, all objects are back."""
    store.put_bytes(BUCKET, "kept", large(b"hello"))
    store.close()
    shutil.move(root / "blobs", root / "elsewhere")
    with ObjectStore(root) as empty:
        until(lambda: "of blobs is empty" in caplog.text)
        assert keys(empty) == ["kept"]
    shutil.rmtree(root / "blobs")
    shutil.move(root / "elsewhere", root / "blobs")
    with ObjectStore(root) as again, again.open(BUCKET, "kept") as stream:
        assert stream.read() == large(b"hello")


def test_an_index_of_an_earlier_build_is_carried_over(store: ObjectStore, root: Path) -> None:
    store.put_bytes(BUCKET, "kept", b"hello")
    in_parts(store, "parts", MIN_PART_BYTES, 5)
    store.close()
    engine = create_engine(f"sqlite:///{root / 'objects.db'}")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE oss_objects DROP COLUMN part_sizes"))
        connection.execute(text("ALTER TABLE oss_parts DROP COLUMN start"))
        connection.execute(text("ALTER TABLE oss_parts DROP COLUMN crc64"))
        connection.execute(text("UPDATE schema_versions SET version = 1 WHERE name = 'objects'"))
    with ObjectStore(root) as again:
        assert "part_sizes" in {column["name"] for column in inspect(engine).get_columns("oss_objects")}
        assert [problem_of(again, key) for key in ("kept", "parts")] == ["", ""]
    engine.dispose()


def as_of_version_2(store: ObjectStore, root: Path) -> None:
    """Close a store, and turn it into one of the build that kept all contents in files."""
    rows = store._database.query(
        "SELECT blob, content FROM oss_objects JOIN oss_contents ON blob = printf('row-%012d', id)", ()
    )
    store.close()
    engine = create_engine(f"sqlite:///{root / 'objects.db'}")
    with engine.begin() as connection:
        for row, content in rows:
            blob = hashlib.md5(row.encode()).hexdigest()
            (root / "blobs" / blob[:2] / blob).write_bytes(content)
            connection.execute(
                text("UPDATE oss_objects SET blob = :blob WHERE blob = :row"), {"blob": blob, "row": row}
            )
        connection.execute(text("DROP TABLE oss_contents"))
        connection.execute(text("ALTER TABLE oss_parts DROP COLUMN start"))
        connection.execute(text("ALTER TABLE oss_parts DROP COLUMN crc64"))
        connection.execute(text("UPDATE schema_versions SET version = 2 WHERE name = 'objects'"))
    engine.dispose()


def test_small_objects_of_a_build_that_had_only_files_stay_readable(store: ObjectStore, root: Path) -> None:
    contents = {f"k{number}": b"content %d" % number for number in range(4)}
    for key, content in contents.items():
        store.put_bytes(BUCKET, key, content)
    as_of_version_2(store, root)
    with ObjectStore(root) as again:
        assert [problem_of(again, key) for key in contents] == [""] * 4
        assert (count_rows(again), len(blob_files(again))) == (0, 4)
        again.copy(BUCKET, "k0", BUCKET, "copy of a file")
        again.put_bytes(BUCKET, "k1", b"a row now")
        again.copy(BUCKET, "k1", BUCKET, "k2")
        again.delete(BUCKET, "k3")
        assert (count_rows(again), len(blob_files(again))) == (1, 2)
    with ObjectStore(root) as once_more:
        assert {key: content_of(once_more, key) for key in keys(once_more)} == {
            "copy of a file": b"content 0",
            "k0": b"content 0",
            "k1": b"a row now",
            "k2": b"a row now",
        }
        versions = once_more._database.query("SELECT version FROM schema_versions WHERE name = 'objects'", ())
        assert versions == [(5,)]  # an older build refuses it


def test_a_row_whose_content_is_gone_is_not_read(store: ObjectStore) -> None:
    store.put_bytes(BUCKET, "put", b"hello")
    store._database.write(lambda connection: connection.execute("DELETE FROM oss_contents"))
    with refused(StorageError, code="ObjectDamaged") as caught:
        store.open(BUCKET, "put")
    assert (caught.value.code, caught.value.status_code) == ("ObjectDamaged", 410)
    assert keys(store) == ["put"]
