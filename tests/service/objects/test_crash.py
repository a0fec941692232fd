"""The server killed, and the disk full."""

from __future__ import annotations

import threading
from pathlib import Path

import oss2
import pytest

from tests.service.objects.conftest import Serve
from tests.service.objects.serving import BUCKET


def test_killed_under_load_it_has_lost_nothing_it_acknowledged(serve_apart: Serve, tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}

    def load(bucket: oss2.Bucket, worker: int) -> None:
        try:
            for number in range(10_000):
                key, size_bytes = f"{worker}/{number % 30}", 1000 if number % 4 else 3 << 20
                bucket.put_object(key, bytes([number % 251]) * size_bytes)
                acknowledged[key] = number
        except oss2.exceptions.RequestError:
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
            for number in (1, 2, 3)
        ]
        with pytest.raises(oss2.exceptions.ServerError) as error:
            bucket.complete_multipart_upload("parts", upload_id, parts)
        assert error.value.status == 507
        bucket.abort_multipart_upload("parts", upload_id)
        assert list((tmp_path / "store" / "incoming").iterdir()) == []
        assert [path for path in (tmp_path / "store" / "blobs").rglob("*") if path.is_file()] == []
        bucket.put_object("small", b"x")
        assert bucket.get_object("small").read() == b"x"
        assert [entry.key for entry in oss2.ObjectIterator(bucket)] == ["small"]
        assert bucket.bucket_name == BUCKET
