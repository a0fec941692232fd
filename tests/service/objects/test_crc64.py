"""The CRC-64 of objects: sent with each response by which clients check what they have, and compared here."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import alibabacloud_oss_v2 as oss_v2
import oss2
import pytest
from oss2.utils import Crc64

from pai_sdk._service.oss.integrity import IntegrityCheck
from pai_sdk._service.oss.multipart import MIN_PART_BYTES
from pai_sdk._service.oss.store import ObjectStore
from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET
from tests.support.waiting import PATIENCE_S

HEADER = "x-oss-hash-crc64ecma"
SMALL, LARGE = b"small", os.urandom(3 * MIN_PART_BYTES + 7)
PARTS = [LARGE[start : start + MIN_PART_BYTES] for start in range(0, len(LARGE), MIN_PART_BYTES)]


def crc64(content: bytes) -> str:
    """As another implementation computes it."""
    check = Crc64()
    check.update(content)
    return str(check.crc)


def upload_parts(bucket: oss2.Bucket, key: str, parts: dict[int, bytes]) -> list[oss2.models.PartInfo]:
    upload = bucket.init_multipart_upload(key).upload_id
    made = []
    for number, content in parts.items():
        result = bucket.upload_part(key, upload, number, content)
        assert result.headers[HEADER] == crc64(content)
        made.append(oss2.models.PartInfo(number, result.etag, size=len(content), part_crc=result.crc))
    result = bucket.complete_multipart_upload(key, upload, sorted(made, key=lambda part: part.part_number))
    assert result.headers[HEADER] == crc64(b"".join(parts[number] for number in sorted(parts)))
    return made


def received(bucket: oss2.Bucket, key: str) -> list[str | None]:
    """What each way of reading an object says of its content."""
    responses = [
        bucket.head_object(key),
        bucket.get_object_meta(key),
        bucket.get_object(key),
        bucket.get_object(key, byte_range=(1, 2)),
    ]
    for response in responses[2:]:
        response.read()
    return [response.headers.get(HEADER) for response in responses]


@pytest.mark.parametrize("content", [b"", SMALL, LARGE], ids=["empty", "row", "file"])
def test_put_and_copy(wire: Wire, content: bytes) -> None:
    bucket = wire.bucket(enable_crc=True)
    assert bucket.put_object("key", content).headers[HEADER] == crc64(content)
    assert received(bucket, "key") == [crc64(content)] * 4
    assert bucket.copy_object(BUCKET, "key", "copy").headers[HEADER] == crc64(content)
    assert received(bucket, "copy") == [crc64(content)] * 4


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 2, 1, 3)], ids=["in order", "in any order"])
def test_parts(wire: Wire, order: tuple[int, ...]) -> None:
    bucket = wire.bucket(enable_crc=True)
    upload_parts(bucket, "key", {number: PARTS[number - 1] for number in order})
    assert received(bucket, "key") == [crc64(LARGE)] * 4


def test_parts_that_were_left_out_replaced_or_copied(wire: Wire) -> None:
    bucket = wire.bucket(enable_crc=True)
    bucket.put_object("source", LARGE)
    upload = bucket.init_multipart_upload("key").upload_id
    bucket.upload_part("key", upload, 1, PARTS[0])
    first = bucket.upload_part("key", upload, 1, PARTS[1])
    bucket.upload_part("key", upload, 2, PARTS[2])
    copied = bucket.upload_part_copy(BUCKET, "source", (0, MIN_PART_BYTES - 1), "key", upload, 3)
    assert copied.headers[HEADER] == crc64(PARTS[0])
    parts = [oss2.models.PartInfo(1, first.etag), oss2.models.PartInfo(3, copied.etag)]
    assert bucket.complete_multipart_upload("key", upload, parts).headers[HEADER] == crc64(PARTS[1] + PARTS[0])
    assert bucket.get_object("key").read() == PARTS[1] + PARTS[0]


def test_appending(wire: Wire) -> None:
    bucket = wire.bucket(enable_crc=True)
    first = bucket.append_object("log", 0, LARGE, init_crc=0)
    second = bucket.append_object("log", len(LARGE), SMALL, init_crc=first.crc)
    assert second.headers[HEADER] == crc64(LARGE + SMALL)
    assert received(bucket, "log") == [crc64(LARGE + SMALL)] * 4


def test_a_download_of_an_object_that_is_replaced_meanwhile_is_no_mixture(wire: Wire, tmp_path: Path) -> None:
    """alibabacloud-oss-v2 1.4 sends no If-Match with its ranges: only this checksum shows that they do not fit."""
    config = oss_v2.config.load_default()
    config.region, config.endpoint, config.use_path_style = REGION, wire.endpoint, True
    config.connect_timeout = config.readwrite_timeout = PATIENCE_S
    config.credentials_provider = oss_v2.credentials.StaticCredentialsProvider(KEY_ID, SECRET)
    client = oss_v2.Client(config)
    size = 16 << 20
    client.put_object(oss_v2.PutObjectRequest(BUCKET, "model", body=b"A" * size))
    first = threading.Lock()

    def replace(increment: int, written: int, total: int) -> None:
        if first.acquire(blocking=False):
            client.put_object(oss_v2.PutObjectRequest(BUCKET, "model", body=b"B" * size))

    request = oss_v2.GetObjectRequest(BUCKET, "model", progress_fn=replace)
    downloader = client.downloader(part_size=1 << 20, parallel_num=1)
    with pytest.raises(oss_v2.exceptions.BaseError, match="crc"):
        downloader.download_file(request, str(tmp_path / "model"))
    client._client._options.http_client.close()


def problem_of(store: ObjectStore, key: str) -> str:
    info, stream = store.open_with_info(BUCKET, key)
    with stream:
        check = IntegrityCheck(info)
        check.update(stream.read())
    return check.problem()


def test_a_byte_of_an_appended_object_that_changes_on_the_disk_is_found(tmp_path: Path) -> None:
    with ObjectStore(tmp_path) as store:
        store.create_bucket(BUCKET)
        for position, content in ((0, LARGE), (len(LARGE), SMALL)):
            with store.writer() as writer:
                writer.write(content)
                info = store.append(writer, BUCKET, "log", position)
        assert problem_of(store, "log") == ""
        with store.path_of_blob(info.blob).open("r+b") as file:
            file.write(bytes([LARGE[0] ^ 1]))
        assert problem_of(store, "log")


def test_objects_and_parts_of_earlier_releases_have_none(tmp_path: Path) -> None:
    """They can still be read, copied, appended to and completed; their ETag is what is checked."""
    with ObjectStore(tmp_path) as store:
        store.create_bucket(BUCKET)
        store.put_bytes(BUCKET, "put", LARGE)
        with store.writer() as writer:
            writer.write(SMALL)
            store.append(writer, BUCKET, "log", 0)
        upload = store.uploads.start(BUCKET, "parts", content_type="", headers={})
        with store.writer() as writer:
            writer.write(PARTS[0])
            store.uploads.add_part(writer, BUCKET, "parts", upload, 1)
    connection = sqlite3.connect(tmp_path / "objects.db")
    connection.execute("UPDATE oss_objects SET crc64 = NULL")
    connection.execute("ALTER TABLE oss_parts DROP COLUMN crc64")
    connection.execute("UPDATE schema_versions SET version = 4 WHERE name = 'objects'")
    connection.commit()
    connection.close()
    with ObjectStore(tmp_path) as store:
        with store.writer() as writer:
            writer.write(SMALL)
            store.append(writer, BUCKET, "log", len(SMALL))
        store.uploads.complete(BUCKET, "parts", upload)
        store.copy(BUCKET, "put", BUCKET, "copy")
        assert {info.key: info.crc64 for info in store.list(BUCKET)} == dict.fromkeys(
            ["copy", "log", "parts", "put"]
        )
        assert [problem_of(store, key) for key in ("copy", "log", "parts", "put")] == [""] * 4
        with store.path_of_blob(store.head(BUCKET, "copy").blob).open("r+b") as file:
            file.write(bytes([LARGE[0] ^ 1]))
        assert problem_of(store, "copy")
