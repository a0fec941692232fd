"""The server killed, and the disk full. More rounds: `TRIAL_CRASHES=100`."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import oss2
import pytest
import requests

from pai_sdk._service.oss.object_rows import MAX_ROW_BYTES
from tests.service.objects.conftest import Serve
from tests.service.objects.serving import BUCKET
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = int(os.environ.get("TRIAL_CRASHES", "2"))

# What a killed server looks like: no answer, or one whose body never came, which oss2 leaves to requests to say.
GONE = (oss2.exceptions.RequestError, requests.RequestException)


def test_killed_under_load_it_has_lost_nothing_it_acknowledged(serve_apart: Serve, tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}

    def load(bucket: oss2.Bucket, worker: int) -> None:
        try:
            for number in range(10_000):
                key, size_bytes = f"{worker}/{number % 30}", 1000 if number % 4 else 3 << 20
                bucket.put_object(key, bytes([number % 251]) * size_bytes)
                acknowledged[key] = number
        except GONE:
            return

    with serve_apart(tmp_path / "store") as (wire, process):
        workers = [
            threading.Thread(target=load, args=(wire.bucket(enable_crc=False), worker)) for worker in range(3)
        ]
        for worker in workers:
            worker.start()
        while len(acknowledged) < 40 and any(worker.is_alive() for worker in workers):
            workers[0].join(0.01)
        process.kill()
        for worker in workers:
            worker.join()
    assert len(acknowledged) >= 40

    with serve_apart(tmp_path / "store") as (wire, _):
        bucket = wire.bucket(enable_crc=False)
        found = {entry.key: entry for entry in oss2.ObjectIterator(bucket, max_keys=1000)}
        assert set(acknowledged) <= set(found)
        for key, entry in found.items():
            content = bucket.get_object(key).read()
            # One whole object: the last that was acknowledged, or the next, on its way when the end came.
            numbers = [acknowledged.get(key, -1)]
            numbers.append(numbers[0] + 30 if key in acknowledged else int(key.partition("/")[2]))
            wanted = [
                bytes([number % 251]) * (1000 if number % 4 else 3 << 20) for number in numbers if number >= 0
            ]
            assert content in wanted
            assert entry.size == len(content)
        assert list((tmp_path / "store" / "incoming").iterdir()) == []


def test_a_full_disk_is_said_so_and_leaves_nothing(serve_apart: Serve, tmp_path: Path) -> None:
    # A limit on the size of files: the kernel refuses the write as it does when the disk is full.
    with serve_apart(tmp_path / "store", max_file_bytes=2 << 20) as (wire, _):
        bucket = wire.bucket()
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.put_object("large", b"x" * (5 << 20))
        assert (error.value.status, error.value.code) == (507, "InsufficientStorage")
        upload_id = bucket.init_multipart_upload("parts").upload_id
        parts = [
            oss2.models.PartInfo(number, bucket.upload_part("parts", upload_id, number, b"x" * (1 << 20)).etag)
            for number in (1, 2)
        ]
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.upload_part("parts", upload_id, 3, b"x" * (1 << 20))  # all parts are in one file
        assert error.value.status == 507
        parts.append(oss2.models.PartInfo(3, bucket.upload_part("parts", upload_id, 3, b"x" * 1000).etag))
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.complete_multipart_upload("parts", upload_id, parts)
        assert error.value.status == 507
        assert [part.part_number for part in bucket.list_parts("parts", upload_id).parts] == [1, 2, 3]
        bucket.abort_multipart_upload("parts", upload_id)
        assert list((tmp_path / "store" / "incoming").iterdir()) == []
        assert [path for path in (tmp_path / "store" / "blobs").rglob("*") if path.is_file()] == []
        bucket.put_object("small", b"x")
        assert bucket.get_object("small").read() == b"x"
        assert [entry.key for entry in oss2.ObjectIterator(bucket)] == ["small"]
        assert bucket.bucket_name == BUCKET


class Worker(threading.Thread):
    """Does everything that can be done with a few objects of its own, until the server is gone.

    Attributes:
        sure: what each object holds by the last answer; None when there is none.
        under_way: what the request that was never answered would have made of its object.
    """

    def __init__(self, bucket: oss2.Bucket, number: int, sure: dict[str, bytes | None], seed: int) -> None:
        super().__init__()
        self.bucket, self.sure = bucket, sure
        self.under_way: dict[str, bytes | None] = {}
        self.answers = 0
        self.fault: BaseException | None = None
        self._keys = [f"{number}/{letter}" for letter in "abc"]
        self._chance = random.Random(seed * 100 + number)

    def run(self) -> None:
        try:
            while True:
                self._step()
                self.answers += 1
        except GONE:
            return
        except BaseException as error:
            self.fault = error

    def _step(self) -> None:
        key, content = self._chance.choice(self._keys), self._content()
        step = self._chance.choice([self._put, self._in_parts, self._copy, self._append, self._remove])
        after = step(key, content)
        self.sure[key] = after
        self.under_way.clear()

    def _content(self) -> bytes:
        return self._chance.randbytes(self._chance.choice([0, 10, 5_000, 1_500_000]))

    def _put(self, key: str, content: bytes) -> bytes:
        self.under_way[key] = content
        self.bucket.put_object(key, content)
        return content

    def _in_parts(self, key: str, content: bytes) -> bytes:
        content = content + self._chance.randbytes(150_000)
        upload_id = self.bucket.init_multipart_upload(key).upload_id
        parts = [
            oss2.models.PartInfo(number, self.bucket.upload_part(key, upload_id, number, piece).etag)
            for number, piece in enumerate((content[:-40_000], content[-40_000:]), 1)
        ]
        self.under_way[key] = content
        self.bucket.complete_multipart_upload(key, upload_id, parts)
        return content

    def _copy(self, key: str, content: bytes) -> bytes | None:
        source = self._chance.choice(self._keys)
        copied = self.sure.get(source)
        if copied is None:
            return self._put(key, content)
        self.under_way[key] = copied
        self.bucket.copy_object(BUCKET, source, key)
        return copied

    def _append(self, key: str, content: bytes) -> bytes:
        self._remove(key, b"")
        self.sure[key] = None
        whole = b""
        for piece in (content, b"and more", content[:5_000]):
            self.under_way[key] = whole + piece
            self.bucket.append_object(key, len(whole), piece)
            self.sure[key] = whole = whole + piece
        return whole

    def _remove(self, key: str, content: bytes) -> None:
        self.under_way[key] = None
        if self._chance.random() < 0.5:
            self.bucket.delete_object(key)
        else:
            self.bucket.batch_delete_objects([key])


@pytest.mark.timeout(600 + ROUNDS * 20)
def test_killed_again_and_again_in_the_middle_of_everything(serve_apart: Serve, tmp_path: Path) -> None:
    root, sure = tmp_path / "store", [{} for _ in range(3)]
    for number in range(ROUNDS):
        with serve_apart(root) as (wire, process):
            workers = [
                Worker(wire.bucket(enable_crc=False), index, known, number) for index, known in enumerate(sure)
            ]
            for worker in workers:
                worker.start()
            wanted = random.Random(number).randint(5, 40)
            while sum(worker.answers for worker in workers) < wanted and any(w.is_alive() for w in workers):
                workers[0].join(0.005)
            process.kill()
            for worker in workers:
                worker.join()
        assert [worker.fault for worker in workers] == [None] * 3
        with serve_apart(root) as (wire, _):
            bucket = wire.bucket(enable_crc=False)
            listed = {entry.key: entry for entry in oss2.ObjectIterator(bucket)}
            for worker in workers:
                for key in {*worker.sure, *worker.under_way}:
                    found = bucket.get_object(key).read() if key in listed else None
                    possible = [
                        worker.sure.get(key),
                        *([worker.under_way[key]] if key in worker.under_way else []),
                    ]
                    assert found in possible, f"round {number}: {key}"
                    assert found is None or listed[key].size == len(found)
                    worker.sure[key] = found
            unfinished = list(oss2.MultipartUploadIterator(bucket))
            parts = sum(len(bucket.list_parts(upload.key, upload.upload_id).parts) for upload in unfinished)
            # What the dead process left beside them is swept away.
            expected = sum(not is_row(entry) for entry in listed.values()) + parts
            until(lambda expected=expected: count_blobs(root) == expected)
            assert rows_without_objects(root) == 0
            assert list((root / "incoming").iterdir()) == []


def is_row(entry: oss2.models.SimplifiedObjectInfo) -> bool:
    return entry.type == "Normal" and entry.size <= MAX_ROW_BYTES


def rows_without_objects(root: Path) -> int:
    named = "SELECT CAST(substr(blob, 5) AS INTEGER) FROM oss_objects WHERE blob >= 'row-'"
    with closing(sqlite3.connect(root / "objects.db")) as database:
        query = f"SELECT count(*) FROM oss_contents WHERE id NOT IN ({named})"
        return database.execute(query).fetchone()[0]


def count_blobs(root: Path) -> int:
    return sum(path.is_file() for path in (root / "blobs").rglob("*"))
