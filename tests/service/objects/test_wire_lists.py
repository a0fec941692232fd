"""Lists of objects and buckets over the wire."""

from __future__ import annotations

import oss2
import pytest

from tests.service.objects.conftest import Wire

BUCKET = "listed-bucket"


@pytest.fixture(scope="module")
def filled(wire: Wire) -> oss2.Bucket:
    """2,500 objects: 1,400 in 7 folders of 200, 1,100 beside them."""
    wire.store.create_bucket(BUCKET)
    for number in range(1400):
        wire.store.put_bytes(BUCKET, f"folder {number % 7}/{number:04}", b"")
    for number in range(1100):
        wire.store.put_bytes(BUCKET, f"top-{number:04}", b"12")
    return wire.bucket(BUCKET)


ITERATORS = pytest.mark.parametrize("iterator", [oss2.ObjectIterator, oss2.ObjectIteratorV2])


@ITERATORS
@pytest.mark.parametrize("max_keys", [37, 1000])
def test_all_pages_with_delimiter(filled: oss2.Bucket, iterator: type, max_keys: int) -> None:
    found = list(iterator(filled, delimiter="/", max_keys=max_keys))
    assert [entry.key for entry in found if entry.is_prefix()] == [f"folder {number}/" for number in range(7)]
    assert [entry.key for entry in found if not entry.is_prefix()] == [
        f"top-{number:04}" for number in range(1100)
    ]


@ITERATORS
def test_all_pages_without(filled: oss2.Bucket, iterator: type) -> None:
    keys = [entry.key for entry in iterator(filled, max_keys=1000)]
    assert len(keys) == 2500
    assert keys == sorted(keys)
    assert len(list(iterator(filled, prefix="folder 3/", max_keys=10))) == 200


def test_what_a_page_says(filled: oss2.Bucket) -> None:
    page = filled.list_objects(prefix="top-", max_keys=2)
    assert (page.is_truncated, page.next_marker) == (True, "top-0001")
    entry = page.object_list[0]
    assert (entry.key, entry.size, entry.type, entry.storage_class) == ("top-0000", 2, "Normal", "Standard")
    assert filled.list_objects(marker="top-1098", max_keys=2).is_truncated is False
    owners = [
        filled.list_objects_v2(max_keys=1, fetch_owner=fetch).object_list[0].owner for fetch in (False, True)
    ]
    assert [owner is not None for owner in owners] == [False, True]
    page = filled.list_objects_v2(start_after="top-1097", max_keys=1)
    assert [info.key for info in page.object_list] == ["top-1098"]
    token = page.next_continuation_token
    assert filled.list_objects_v2(continuation_token=token).object_list[0].key == "top-1099"


@pytest.mark.parametrize("params", [{"max_keys": 0}, {"max_keys": 1001}, {"max_keys": -1}])
def test_pages_that_cannot_be(filled: oss2.Bucket, params: dict) -> None:
    for read in (filled.list_objects, filled.list_objects_v2):
        with pytest.raises(oss2.exceptions.InvalidArgument):
            read(**params)
    with pytest.raises(oss2.exceptions.InvalidArgument):
        filled.list_objects_v2(continuation_token="ÿ no token")


def test_names_that_xml_cannot_say(wire: Wire) -> None:
    wire.store.create_bucket("odd-names")
    keys = ["\x01/a", "\x01/b", "a\rb", "\ufffe", "<&>]]>"]
    for key in keys:
        wire.store.put_bytes("odd-names", key, b"")
    bucket = wire.bucket("odd-names")
    assert sorted(entry.key for entry in oss2.ObjectIterator(bucket)) == sorted(keys)
    page = bucket.list_objects_v2(delimiter="/")
    assert page.prefix_list == ["\x01/"]
    # A client that did not ask for the encoding gets it all the same, said so, rather than wrong names.
    answer = bucket._Bucket__do_bucket("GET", params={"prefix": "\x01"})
    assert b"<EncodingType>url</EncodingType>" in answer.read()


def test_deleting_many(wire: Wire) -> None:
    wire.store.create_bucket("emptied")
    bucket = wire.bucket("emptied")
    keys = [f"k {number} é&<" for number in range(30)]
    for key in keys:
        bucket.put_object(key, b"")
    assert bucket.batch_delete_objects([*keys[:29], "not there"]).deleted_keys == [*keys[:29], "not there"]
    assert [entry.key for entry in oss2.ObjectIterator(bucket)] == keys[29:]
    with pytest.raises(oss2.exceptions.ServerError) as error:
        bucket.delete_bucket()
    assert (error.value.status, error.value.code) == (409, "BucketNotEmpty")
    bucket.delete_object(keys[29])
    bucket.delete_bucket()
    with pytest.raises(oss2.exceptions.NoSuchBucket):
        bucket.get_bucket_info()


def test_buckets(wire: Wire) -> None:
    bucket = wire.bucket("made-over-wire")
    bucket.create_bucket()
    bucket.create_bucket()
    info = bucket.get_bucket_info()
    assert (info.name, info.location, info.acl.grant) == ("made-over-wire", "oss-cn-test", "private")
    assert bucket.get_bucket_location().location == "oss-cn-test"
    assert bucket.get_bucket_acl().acl == "private"
    names = [info.name for info in oss2.BucketIterator(wire.service(), max_keys=1)]
    assert names == sorted(names)
    assert "made-over-wire" in names
    assert [info.name for info in oss2.BucketIterator(wire.service(), prefix="made")] == ["made-over-wire"]
    for name, code in [("api", "InvalidBucketName"), ("Bad_Name", "InvalidBucketName")]:
        wrong = wire.bucket("good-name")
        wrong.bucket_name = name
        with pytest.raises(oss2.exceptions.ServerError) as error:
            wrong.create_bucket()
        assert (error.value.status, error.value.code) == (400, code)
    with pytest.raises(oss2.exceptions.ServerError) as error:
        wire.bucket("public-bucket").create_bucket(oss2.BUCKET_ACL_PUBLIC_READ)
    assert error.value.code == "NotImplemented"
