"""What is swept away beside the work of the store, and what never is."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import oss2
import pytest

from pai_sdk._service.oss.index import ObjectIndex
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.oss.sweep import Sweeper
from tests.service.objects.contents import large
from tests.service.objects.serving import BUCKET, open_store
from tests.service.services import running_service
from tests.support.waiting import PATIENCE_S, until


def start_upload(store: ObjectStore, key: str, *contents: bytes) -> str:
    upload_id = store.uploads.start(BUCKET, key, content_type="text/x", headers={})
    for number, content in enumerate(contents, 1):
        with store.writer() as writer:
            writer.write(content)
            store.uploads.add_part(writer, BUCKET, key, upload_id, number)
    return upload_id


def blobs_of(root: Path) -> list[Path]:
    return [path for path in (root / "blobs").rglob("*") if path.is_file()]


def test_an_upload_nobody_goes_on_with_is_aborted_and_its_parts_are_removed(
    tmp_path: Path, no_round: threading.Lock
) -> None:
    with open_store(tmp_path) as store:
        store.create_bucket(BUCKET)
        store.put_bytes(BUCKET, "object", large(b"kept"))
        start_upload(store, "forgotten", b"one", b"two")
    with open_store(tmp_path) as store:  # a week is long
        assert [upload.key for upload in store.uploads.list(BUCKET)] == ["forgotten"]
    with open_store(tmp_path, upload_life_s=0) as store:
        until(lambda: len(blobs_of(tmp_path)) == 1)
        assert store.uploads.list(BUCKET) == []
        with store.open(BUCKET, "object") as stream:
            assert stream.read() == large(b"kept")
        # Not only at the start:
        with no_round:  # or its life would be over before its part comes
            start_upload(store, "forgotten too", b"one")
        until(lambda: not store.uploads.list(BUCKET))
        until(lambda: len(blobs_of(tmp_path)) == 1)


@pytest.fixture
def no_round(monkeypatch: pytest.MonkeyPatch) -> threading.Lock:
    """While it is held, no upload is aborted."""
    lock, expire = threading.Lock(), Sweeper._expire_uploads

    def locked(sweeper: Sweeper) -> None:
        with lock:
            expire(sweeper)

    monkeypatch.setattr(Sweeper, "_expire_uploads", locked)
    return lock


def test_every_part_gives_an_upload_a_new_life(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(time.time())  # no clock of a machine goes forward only
    monkeypatch.setattr("pai_sdk._service.oss.multipart.time", SimpleNamespace(time=lambda: next(ticks)))
    upload_id = start_upload(store, "slow")
    between = next(ticks)
    [upload] = store.uploads.idle_since(between)
    with store.writer() as writer:
        writer.write(b"one")
        store.uploads.add_part(writer, BUCKET, "slow", upload_id, 1)
    assert store.uploads.idle_since(between) == []
    assert not store.uploads.expire(upload, between)
    assert store.uploads.complete(BUCKET, "slow", upload_id).size_bytes == 3
    assert not store.uploads.expire(upload, next(ticks))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Holds the sweep of the blobs back until the test lets it go."""
    opened, sweep = threading.Event(), Sweeper._sweep_blobs

    def held_back(sweeper: Sweeper) -> None:
        assert opened.wait(PATIENCE_S)
        sweep(sweeper)

    monkeypatch.setattr(Sweeper, "_sweep_blobs", held_back)
    return opened


def test_a_blob_is_safe_before_its_object_is_recorded(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between: the content lies in its place, and no row speaks of it yet."""
    orphan = tmp_path / "blobs" / "ff" / ("ff" * 16)
    record, recording, swept = ObjectIndex.record, threading.Event(), threading.Event()

    def record_late(index: ObjectIndex, info, **options):
        recording.set()
        assert swept.wait(PATIENCE_S)
        return record(index, info, **options)

    monkeypatch.setattr(ObjectIndex, "record", record_late)
    with open_store(tmp_path) as store:
        store.create_bucket(BUCKET)
        orphan.write_bytes(b"left by a process that died")
        putting = threading.Thread(target=store.put_bytes, args=(BUCKET, "k", large(b"content")))
        putting.start()
        assert recording.wait(PATIENCE_S)
        gate.set()
        until(lambda: not orphan.exists())
        swept.set()
        putting.join()
        with store.open(BUCKET, "k") as stream:
            assert stream.read() == large(b"content")


@pytest.mark.slow
def test_nothing_that_is_written_while_all_is_swept_is_lost(tmp_path: Path, gate: threading.Event) -> None:
    with open_store(tmp_path) as store:
        store.create_bucket(BUCKET)
        for number in range(512):
            name = f"{number % 256:02x}{number:030x}"
            (tmp_path / "blobs" / name[:2] / name).write_bytes(b"orphan")
        failed: list[BaseException] = []

        def work(worker: int) -> None:
            try:
                for number in range(40):
                    key = f"{worker}/{number}"
                    store.put_bytes(BUCKET, key, large(key.encode()))
                    store.copy(BUCKET, key, BUCKET, f"{key} copy")
                    with store.writer() as writer:
                        writer.write(large(key.encode()))
                        store.append(writer, BUCKET, f"{key} log", 0)
                    store.uploads.complete(
                        BUCKET, f"{key} parts", start_upload(store, f"{key} parts", large(key.encode()))
                    )
                    gate.set()
            except BaseException as error:
                failed.append(error)

        workers = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in workers:
            thread.start()
        for thread in workers:
            thread.join()
        assert failed == []
        until(lambda: len(blobs_of(tmp_path)) == 4 * 40 * 4)
        for info in store.list(BUCKET):
            with store.open(BUCKET, info.key) as stream:
                assert stream.read() == large(info.key.split(" ")[0].encode())


def test_the_service_is_told_how_long_an_upload_may_lie(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with running_service(data_dir) as client:
        client.bucket().init_multipart_upload("forgotten")
    with running_service(data_dir, upload_life_s=0) as client:
        bucket = client.bucket()
        until(lambda: not list(oss2.MultipartUploadIterator(bucket)))
