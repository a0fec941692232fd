"""Uploads in parts over the wire."""

from __future__ import annotations

import hashlib
import os

import oss2
import pytest
from oss2.models import PartInfo

from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET

PART = 100 * 1024


def put_parts(bucket: oss2.Bucket, key: str, contents: list[bytes]) -> tuple[str, list[PartInfo]]:
    upload_id = bucket.init_multipart_upload(
        key, headers={"Content-Type": "text/m", "x-oss-meta-a": "1"}
    ).upload_id
    parts = [
        PartInfo(number, bucket.upload_part(key, upload_id, number, content).etag)
        for number, content in enumerate(contents, 1)
    ]
    return upload_id, parts


@pytest.mark.parametrize("crc", [True, False])
def test_resumable_upload_and_download(wire: Wire, tmp_path, crc: bool) -> None:
    content = os.urandom(5 * PART + 17)
    (tmp_path / "in").write_bytes(content)
    bucket = wire.bucket(enable_crc=crc)
    store = oss2.ResumableStore(root=str(tmp_path))
    oss2.resumable_upload(
        bucket, "parts/ü", str(tmp_path / "in"), store=store, multipart_threshold=0, part_size=PART, num_threads=3
    )
    head = bucket.head_object("parts/ü")
    assert head.etag.endswith("-6")
    assert (head.object_type, head.content_length) == ("Multipart", len(content))
    oss2.resumable_download(
        bucket, "parts/ü", str(tmp_path / "out"), multiget_threshold=0, part_size=PART, num_threads=3
    )
    assert (tmp_path / "out").read_bytes() == content


def test_parts_with_and_without_md5_make_an_object(wire: Wire) -> None:
    """Clients that send Content-MD5, as earlier releases of ours do, compare the ETag of a part with it."""
    bucket = wire.bucket()
    upload_id = bucket.init_multipart_upload("mixed").upload_id
    contents = [os.urandom(PART), os.urandom(2 << 20), os.urandom(2 << 20), b"end"]
    etags = []
    for number, content in enumerate(contents, 1):
        md5 = {"Content-MD5": oss2.utils.content_md5(content)} if number % 2 else {}
        etags.append(bucket.upload_part("mixed", upload_id, number, content, headers=md5).etag)
    md5s = [hashlib.md5(content).hexdigest().upper() for content in contents]
    assert [etag == md5 for etag, md5 in zip(etags, md5s, strict=True)] == [True, False, True, False]
    parts = [PartInfo(number, etag) for number, etag in enumerate(etags, 1)]
    bucket.complete_multipart_upload("mixed", upload_id, parts)
    assert bucket.get_object("mixed").read() == b"".join(contents)


def test_parts_make_an_object_and_leave_nothing_else(wire: Wire) -> None:
    bucket = wire.bucket()
    upload_id, parts = put_parts(bucket, "made", [b"a" * PART, b"old"])
    parts[1] = PartInfo(2, bucket.upload_part("made", upload_id, 2, b"end").etag)
    assert not bucket.object_exists("made")
    assert [(part.part_number, part.size) for part in bucket.list_parts("made", upload_id).parts] == [
        (1, PART),
        (2, 3),
    ]
    bucket.complete_multipart_upload("made", upload_id, parts)
    got = bucket.get_object("made")
    assert got.read() == b"a" * PART + b"end"
    assert (got.content_type, got.headers["x-oss-meta-a"]) == ("text/m", "1")
    with pytest.raises(oss2.exceptions.NoSuchUpload):
        bucket.complete_multipart_upload("made", upload_id, parts)
    bucket.delete_object("made")
    assert list(oss2.MultipartUploadIterator(bucket, prefix="made")) == []


def test_one_part_is_enough_and_all_may_be_taken(wire: Wire) -> None:
    bucket = wire.bucket()
    upload_id, _ = put_parts(bucket, "single", [b"only"])
    bucket.complete_multipart_upload("single", upload_id, None, headers={"x-oss-complete-all": "yes"})
    assert bucket.get_object("single").read() == b"only"


@pytest.mark.parametrize(
    ("choose", "code"),
    [
        (lambda parts: [PartInfo(1, "0" * 32), parts[1]], "InvalidPart"),
        (lambda parts: [*parts, PartInfo(9, parts[0].etag)], "InvalidPart"),
        (lambda parts: [], "InvalidPart"),
        (lambda parts: [PartInfo(2, parts[1].etag), PartInfo(2, parts[1].etag)], "InvalidPartOrder"),
        (lambda parts: parts, "EntityTooSmall"),
    ],
)
def test_parts_that_do_not_fit(wire: Wire, choose, code: str) -> None:
    bucket = wire.bucket()
    upload_id, parts = put_parts(bucket, "misfit", [b"small", b"end"])
    with pytest.raises(oss2.exceptions.ServerError) as error:
        bucket.complete_multipart_upload("misfit", upload_id, choose(parts))
    assert (error.value.status, error.value.code) == (400, code)
    bucket.abort_multipart_upload("misfit", upload_id)
    assert not bucket.object_exists("misfit")


def test_parts_do_not_replace_what_must_not_be_overwritten(wire: Wire) -> None:
    bucket = wire.bucket()
    bucket.put_object("taken", b"first")
    upload_id, parts = put_parts(bucket, "taken", [b"a" * PART, b"end"])
    with pytest.raises(oss2.exceptions.ServerError) as error:
        bucket.complete_multipart_upload("taken", upload_id, parts, headers={"x-oss-forbid-overwrite": "true"})
    assert (error.value.status, error.value.code) == (409, "FileAlreadyExists")
    assert bucket.get_object("taken").read() == b"first"
    # The parts are still there: the client may decide otherwise.
    bucket.complete_multipart_upload("taken", upload_id, parts)
    assert bucket.get_object("taken").read() == b"a" * PART + b"end"


@pytest.mark.parametrize("number", [0, 10001, -1])
def test_part_numbers_that_cannot_be(wire: Wire, number: int) -> None:
    bucket = wire.bucket()
    upload_id = bucket.init_multipart_upload("numbers").upload_id
    with pytest.raises(oss2.exceptions.InvalidArgument):
        bucket.upload_part("numbers", upload_id, number, b"x")
    bucket.abort_multipart_upload("numbers", upload_id)


def test_an_aborted_upload_is_gone(wire: Wire) -> None:
    bucket = wire.bucket()
    upload_id, parts = put_parts(bucket, "aborted", [b"x"])
    bucket.abort_multipart_upload("aborted", upload_id)
    for use in (
        lambda: bucket.upload_part("aborted", upload_id, 2, b"x"),
        lambda: bucket.list_parts("aborted", upload_id),
        lambda: bucket.abort_multipart_upload("aborted", upload_id),
        lambda: bucket.complete_multipart_upload("other key", upload_id, parts),
    ):
        with pytest.raises(oss2.exceptions.NoSuchUpload):
            use()


def test_parts_copied_from_objects(wire: Wire) -> None:
    bucket = wire.bucket()
    bucket.put_object("source ü", bytes(range(256)) * 800)
    upload_id = bucket.init_multipart_upload("patched").upload_id
    parts = [
        PartInfo(1, bucket.upload_part_copy(BUCKET, "source ü", (0, PART - 1), "patched", upload_id, 1).etag),
        PartInfo(2, bucket.upload_part_copy(BUCKET, "source ü", (10, 19), "patched", upload_id, 2).etag),
    ]
    with pytest.raises(oss2.exceptions.ServerError) as error:
        bucket.upload_part_copy(BUCKET, "source ü", (0, 10**9), "patched", upload_id, 3)
    assert error.value.code == "InvalidRange"
    bucket.complete_multipart_upload("patched", upload_id, parts)
    assert bucket.get_object("patched").read() == (bytes(range(256)) * 800)[:PART] + bytes(range(10, 20))


def test_unfinished_uploads_are_listed_in_pages(wire: Wire) -> None:
    wire.store.create_bucket("unfinished")
    bucket = wire.bucket("unfinished")
    keys = ["a", "a", "dir/1", "dir/2", "é\x01"]
    ids = {(key, bucket.init_multipart_upload(key).upload_id) for key in keys}
    for max_uploads in (1, 2, 1000):
        found = list(oss2.MultipartUploadIterator(bucket, max_uploads=max_uploads))
        assert {(entry.key, entry.upload_id) for entry in found} == ids
        assert len(found) == len(keys)
    grouped = list(oss2.MultipartUploadIterator(bucket, delimiter="/", max_uploads=1))
    assert sorted(entry.key for entry in grouped) == ["a", "a", "dir/", "é\x01"]
    with pytest.raises(oss2.exceptions.ServerError) as error:
        bucket.delete_bucket()
    assert error.value.code == "BucketNotEmpty"


def test_parts_are_listed_in_pages(wire: Wire) -> None:
    bucket = wire.bucket()
    upload_id, _ = put_parts(bucket, "many", [b"x"] * 7)
    found = [part.part_number for part in oss2.PartIterator(bucket, "many", upload_id, max_parts=3)]
    assert found == list(range(1, 8))
    bucket.abort_multipart_upload("many", upload_id)
