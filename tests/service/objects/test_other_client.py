"""The other official client, alibabacloud-oss-v2: what it does on OSS it does here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import alibabacloud_oss_v2 as oss
import pytest
import requests

from tests.service.objects.conftest import Wire
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET
from tests.support.waiting import PATIENCE_S

PART = 100 * 1024


@pytest.fixture(params=["v1", "v4"])
def client(wire: Wire, request: pytest.FixtureRequest) -> Iterator[oss.Client]:
    config = oss.config.load_default()
    config.region, config.endpoint, config.use_path_style = REGION, wire.endpoint, True
    config.signature_version = request.param
    config.connect_timeout = config.readwrite_timeout = PATIENCE_S
    # It repeats after 501 too; its own pauses add up to seconds.
    config.retryer = oss.retry.StandardRetryer(base_delay=0.001)
    config.credentials_provider = oss.credentials.StaticCredentialsProvider(KEY_ID, SECRET)
    made = oss.Client(config)
    yield made
    made._client._options.http_client.close()


def read(client: oss.Client, key: str, **options) -> bytes:
    with client.get_object(oss.GetObjectRequest(BUCKET, key, **options)).body as body:
        return body.read()


def code_of(error: pytest.ExceptionInfo[oss.exceptions.OperationError]) -> tuple[int, str]:
    cause = error.value.unwrap()
    assert isinstance(cause, oss.exceptions.ServiceError)
    assert cause.request_id
    return cause.status_code, cause.code


@pytest.mark.parametrize("key", ["plain", "a//b", "?#%+&=;:@ ü", "日本/🙂", "line\nbreak"], ids=ascii)
def test_an_object_there_and_back(client: oss.Client, key: str) -> None:
    sent = oss.PutObjectRequest(
        BUCKET, key, body=b"0123456789", metadata={"owner": "me"}, content_type="text/z", forbid_overwrite="false"
    )
    etag = client.put_object(sent).etag
    got = client.get_object(oss.GetObjectRequest(BUCKET, key))
    assert (got.body.read(), got.etag, got.content_type) == (b"0123456789", etag, "text/z")
    got.body.close()
    assert got.metadata == {"owner": "me"}
    head = client.head_object(oss.HeadObjectRequest(BUCKET, key))
    assert (head.content_length, head.object_type, head.etag) == (10, "Normal", etag)
    assert client.get_object_meta(oss.GetObjectMetaRequest(BUCKET, key)).content_length == 10
    assert client.is_object_exist(BUCKET, key)
    listed = client.list_objects_v2(oss.ListObjectsV2Request(BUCKET, prefix=key))
    assert [entry.key for entry in listed.contents] == [key]
    deleted = client.delete_multiple_objects(
        oss.DeleteMultipleObjectsRequest(BUCKET, objects=[oss.DeleteObject(key=key)])
    )
    assert [entry.key for entry in deleted.deleted_objects] == [key]
    assert not client.is_object_exist(BUCKET, key)


def test_ranges(client: oss.Client) -> None:
    client.put_object(oss.PutObjectRequest(BUCKET, "ranged", body=b"0123456789"))
    assert read(client, "ranged", range_header="bytes=2-4") == b"234"
    assert read(client, "ranged", range_header="bytes=-3") == b"789"
    assert read(client, "ranged", range_header="bytes=7-99", range_behavior="standard") == b"789"
    with pytest.raises(oss.exceptions.OperationError) as error:
        read(client, "ranged", range_header="bytes=10-", range_behavior="standard")
    assert code_of(error) == (416, "InvalidRange")


@pytest.mark.parametrize(
    ("ask", "status", "code"),
    [
        (lambda c: c.get_object(oss.GetObjectRequest(BUCKET, "missing")), 404, "NoSuchKey"),
        (lambda c: c.head_object(oss.HeadObjectRequest(BUCKET, "missing")), 404, "NoSuchKey"),
        (lambda c: c.get_object(oss.GetObjectRequest("no-such-bucket", "k")), 404, "NoSuchBucket"),
        (lambda c: c.get_object(oss.GetObjectRequest(BUCKET, "k", if_match='"no"')), 412, "PreconditionFailed"),
        (
            lambda c: c.put_object(oss.PutObjectRequest(BUCKET, "k", body=b"2", forbid_overwrite="true")),
            409,
            "FileAlreadyExists",
        ),
        (
            lambda c: c.put_object(oss.PutObjectRequest(BUCKET, "k", body=b"2", content_md5="AAAA")),
            400,
            "InvalidDigest",
        ),
        (
            lambda c: c.list_parts(oss.ListPartsRequest(BUCKET, "k", upload_id="0" * 32)),
            404,
            "NoSuchUpload",
        ),
    ],
)
def test_what_is_refused_is_read_as_such(client: oss.Client, ask, status: int, code: str) -> None:
    client.put_object(oss.PutObjectRequest(BUCKET, "k", body=b"1"))
    with pytest.raises(oss.exceptions.OperationError) as error:
        ask(client)
    assert code_of(error) == (status, code)
    assert read(client, "k") == b"1"


def test_an_object_in_parts_and_the_pages_of_its_parts(client: oss.Client) -> None:
    upload = client.initiate_multipart_upload(oss.InitiateMultipartUploadRequest(BUCKET, "in parts")).upload_id
    content = os.urandom(4 * PART + 7)
    etags = {}
    for number, at in enumerate(range(0, len(content), PART), 1):
        piece = content[at : at + PART]
        sent = oss.UploadPartRequest(BUCKET, "in parts", upload_id=upload, part_number=number, body=piece)
        etags[number] = client.upload_part(sent).etag
    pages = list(
        client.list_parts_paginator().iter_page(
            oss.ListPartsRequest(BUCKET, "in parts", upload_id=upload, max_parts=2)
        )
    )
    assert [page.is_truncated for page in pages] == [True, True, False]
    parts = [part for page in pages for part in page.parts]
    assert [(part.part_number, part.size) for part in parts] == [
        (number, PART if number < 5 else 7) for number in range(1, 6)
    ]
    assert {part.part_number: part.etag for part in parts} == etags
    uploads = [
        entry.key
        for page in client.list_multipart_uploads_paginator().iter_page(
            oss.ListMultipartUploadsRequest(BUCKET, max_uploads=1, prefix="in ")
        )
        for entry in page.uploads
    ]
    assert uploads == ["in parts"]
    client.complete_multipart_upload(
        oss.CompleteMultipartUploadRequest(
            BUCKET,
            "in parts",
            upload_id=upload,
            complete_multipart_upload=oss.CompleteMultipartUpload(
                parts=[oss.UploadPart(part_number=number, etag=etag) for number, etag in etags.items()]
            ),
        )
    )
    assert read(client, "in parts") == content


def test_its_uploader_downloader_and_copier(client: oss.Client, tmp_path: Path) -> None:
    content = os.urandom(7 * PART + 11)
    (tmp_path / "in").write_bytes(content)
    to = oss.PutObjectRequest(BUCKET, "managed")
    client.uploader(part_size=PART, parallel_num=3).upload_file(to, str(tmp_path / "in"))
    assert client.head_object(oss.HeadObjectRequest(BUCKET, "managed")).object_type == "Multipart"
    downloader = client.downloader(part_size=PART, parallel_num=3)
    downloader.download_file(oss.GetObjectRequest(BUCKET, "managed"), str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == content
    copier = client.copier(part_size=PART, multipart_copy_threshold=1, disable_shallow_copy=True)
    copier.copy(oss.CopyObjectRequest(BUCKET, "copied", source_key="managed"))
    assert read(client, "copied") == content


def test_an_upload_that_broke_off_goes_on_from_its_checkpoint(client: oss.Client, tmp_path: Path) -> None:
    content = os.urandom(6 * PART)
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "checkpoints").mkdir()
    unfinished = oss.ListMultipartUploadsRequest(BUCKET, prefix="continued")
    uploader = client.uploader(
        part_size=PART,
        parallel_num=1,
        leave_parts_on_error=True,
        enable_checkpoint=True,
        checkpoint_dir=str(tmp_path / "checkpoints"),
    )

    def break_off(increment: int, done: int, total: int) -> None:
        if done >= 3 * PART:
            raise KeyError("enough")

    broken = oss.PutObjectRequest(BUCKET, "continued", progress_fn=break_off)
    with pytest.raises(Exception, match="enough"):
        uploader.upload_file(broken, str(tmp_path / "in"))
    assert client.list_multipart_uploads(unfinished).uploads
    uploader.upload_file(oss.PutObjectRequest(BUCKET, "continued"), str(tmp_path / "in"))
    assert read(client, "continued") == content
    # It took up the upload that was there: a new one would have left the old one behind.
    assert not client.list_multipart_uploads(unfinished).uploads


def test_copying_and_appending(client: oss.Client) -> None:
    client.put_object(oss.PutObjectRequest(BUCKET, "source ü", body=b"content"))
    client.copy_object(oss.CopyObjectRequest(BUCKET, "copy", source_key="source ü"))
    assert read(client, "copy") == b"content"
    client.delete_object(oss.DeleteObjectRequest(BUCKET, "log"))
    first = client.append_object(oss.AppendObjectRequest(BUCKET, "log", position=0, body=b"one "))
    client.append_object(oss.AppendObjectRequest(BUCKET, "log", position=first.next_position, body=b"two"))
    with client.append_file(BUCKET, "log") as file:
        file.write(b" three")
    assert read(client, "log") == b"one two three"
    with client.open_file(BUCKET, "log") as file:
        file.seek(4)
        assert file.read(3) == b"two"


@pytest.mark.parametrize("version", [1, 2])
def test_its_paginators(client: oss.Client, version: int) -> None:
    for number in range(7):
        client.put_object(oss.PutObjectRequest(BUCKET, f"pages/{number % 3}/{number}", body=b""))
    kind = oss.ListObjectsRequest if version == 1 else oss.ListObjectsV2Request
    paginator = client.list_objects_paginator() if version == 1 else client.list_objects_v2_paginator()
    pages = list(paginator.iter_page(kind(BUCKET, prefix="pages/", max_keys=3)))
    assert [len(page.contents) for page in pages] == [3, 3, 1]
    pages = list(paginator.iter_page(kind(BUCKET, prefix="pages/", delimiter="/", max_keys=2)))
    folders = [entry.prefix for page in pages for entry in page.common_prefixes or []]
    assert folders == ["pages/0/", "pages/1/", "pages/2/"]
    pages = list(client.list_buckets_paginator().iter_page(oss.ListBucketsRequest(max_keys=1)))
    assert BUCKET in [bucket.name for page in pages for bucket in page.buckets]


@pytest.mark.parametrize(
    "unwanted", [{"if_none_match": "*"}, {"if_modified_since": "Fri, 01 Jan 2100 00:00:00 GMT"}], ids=str
)
def test_a_copy_of_what_the_client_knows_is_not_made(client: oss.Client, unwanted: dict[str, str]) -> None:
    client.put_object(oss.PutObjectRequest(BUCKET, "known", body=b"x"))
    with pytest.raises(oss.exceptions.OperationError) as error:
        client.copy_object(oss.CopyObjectRequest(BUCKET, "its copy", source_key="known", **unwanted))
    cause = error.value.unwrap()
    assert isinstance(cause, oss.exceptions.ServiceError)
    assert cause.status_code == 304
    upload = client.initiate_multipart_upload(oss.InitiateMultipartUploadRequest(BUCKET, "its copy")).upload_id
    with pytest.raises(oss.exceptions.OperationError) as error:
        client.upload_part_copy(
            oss.UploadPartCopyRequest(
                BUCKET, "its copy", upload_id=upload, part_number=1, source_key="known", **unwanted
            )
        )
    cause = error.value.unwrap()
    assert isinstance(cause, oss.exceptions.ServiceError)
    assert cause.status_code == 304
    assert not client.is_object_exist(BUCKET, "its copy")


def test_what_is_not_offered_is_named_as_such(client: oss.Client) -> None:
    """Also where this client signs otherwise than the older one, which makes a wrong signature of it."""
    client.put_object(oss.PutObjectRequest(BUCKET, "k", body=b"x"))
    standard_ia = oss.CreateBucketConfiguration(storage_class="IA")
    other_zones = oss.CreateBucketConfiguration(data_redundancy_type="ZRS")
    for ask in (
        lambda: client.get_object(oss.GetObjectRequest(BUCKET, "k", process="image/resize,w_1")),
        lambda: client.process_object(oss.ProcessObjectRequest(BUCKET, "k", process="image/resize,w_1")),
        lambda: client.async_process_object(oss.AsyncProcessObjectRequest(BUCKET, "k", process="video/convert")),
        lambda: client.clean_restored_object(oss.CleanRestoredObjectRequest(BUCKET, "k")),
        lambda: client.seal_append_object(oss.SealAppendObjectRequest(BUCKET, "k", position="1")),
        lambda: client.put_object(oss.PutObjectRequest(BUCKET, "k", body=b"y", traffic_limit=1)),
        lambda: client.get_object(oss.GetObjectRequest(BUCKET, "k", traffic_limit=1_000_000)),
        lambda: client.put_bucket(oss.PutBucketRequest("cold-one", create_bucket_configuration=standard_ia)),
        lambda: client.put_bucket(oss.PutBucketRequest("cold-one", create_bucket_configuration=other_zones)),
    ):
        with pytest.raises(oss.exceptions.OperationError) as error:
            ask()
        assert code_of(error) == (501, "NotImplemented")
    assert read(client, "k") == b"x"
    assert not client.is_bucket_exist("cold-one")
    standard = oss.CreateBucketConfiguration(storage_class="Standard", data_redundancy_type="LRS")
    client.put_bucket(oss.PutBucketRequest("warm-one", create_bucket_configuration=standard))
    client.delete_bucket(oss.DeleteBucketRequest("warm-one"))


def test_presigned_urls(client: oss.Client) -> None:
    with requests.Session() as session:
        put = client.presign(oss.PutObjectRequest(BUCKET, "presigned +ü", content_type="text/z"))
        assert session.request(put.method, put.url, data=b"x", headers=put.signed_headers).status_code == 200
        got = client.presign(oss.GetObjectRequest(BUCKET, "presigned +ü"))
        assert session.get(got.url).content == b"x"
        assert session.get(got.url.replace("presigned", "other")).status_code == 403


def test_buckets(client: oss.Client) -> None:
    client.put_bucket(oss.PutBucketRequest("made-by-v2"))
    assert client.is_bucket_exist("made-by-v2")
    assert client.get_bucket_info(oss.GetBucketInfoRequest("made-by-v2")).bucket_info.name == "made-by-v2"
    assert client.get_bucket_location(oss.GetBucketLocationRequest("made-by-v2")).location == f"oss-{REGION}"
    client.delete_bucket(oss.DeleteBucketRequest("made-by-v2"))
    assert not client.is_bucket_exist("made-by-v2")
