"""The parts of an OSS URI by alipai's names; what is uploaded and fetched by them is in tests/service."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pai_sdk.common.oss_utils import OssUriObj, is_oss_uri
from pai_sdk.common.utils import random_str

from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

BUCKETS = st.from_regex(r"[a-z0-9][a-z0-9-]{1,8}[a-z0-9]", fullmatch=True)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
    lambda key: not key.startswith(("/", "\\")) and key not in (".", "..")
)


@given(BUCKETS, KEYS, st.sampled_from([None, "oss-cn-x.aliyuncs.com", "127.0.0.1:8765"]))
def test_parts_come_back_whole(bucket: str, key: str, endpoint: str | None) -> None:
    """alipai cuts keys at `?` and `#`, and drops ports."""
    given = OssUriObj.from_bucket_key_endpoint(bucket, key, endpoint)
    assert (given.bucket_name, given.object_key, given.endpoint) == (bucket, key, endpoint)
    assert OssUriObj(given.uri).object_key == key
    if endpoint:
        assert OssUriObj(given.get_uri_with_endpoint()).endpoint == endpoint


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("oss://bkt/a/b.txt", ("bkt", "a/b.txt", None, None)),
        ("oss://bkt.oss-cn-x.aliyuncs.com/a/", ("bkt", "a/", "oss-cn-x.aliyuncs.com", None)),
        ("oss://bkt/a?endpoint=oss-cn-x.aliyuncs.com", ("bkt", "a", "oss-cn-x.aliyuncs.com", None)),
        (
            "oss://bkt/a?host=h.example.com&role_arn=acs:ram::1:role/r",
            ("bkt", "a", "h.example.com", "acs:ram::1:role/r"),
        ),
        ("oss://bkt/a?b=c#d", ("bkt", "a?b=c#d", None, None)),
    ],
)
def test_an_endpoint_and_a_role_may_follow_as_a_query(uri: str, parts: tuple[str | None, ...]) -> None:
    assert OssUriObj.parse(uri) == parts


@pytest.mark.parametrize(
    ("key", "folder", "parsed"),
    [
        ("a/b/c.txt", "oss://bkt/a/b/", (False, "/a/b/", "c.txt")),
        ("a/b/", "oss://bkt/a/b/", (True, "/a/b/", None)),
        ("c.txt", "oss://bkt/", (False, "/", "c.txt")),
        ("", "oss://bkt/", (True, "/", None)),
    ],
)
def test_the_folder_of_an_object(key: str, folder: str, parsed: tuple[bool, str, str | None]) -> None:
    uri = OssUriObj(f"oss://bkt/{key}")
    assert uri.get_dir_uri() == folder
    assert uri.parse_object_key() == parsed


def test_an_endpoint_is_taken_with_its_scheme() -> None:
    """alipai makes `orage.example.com` of it."""
    uri = OssUriObj.from_bucket_key_endpoint("bkt", "/a", "https://storage.example.com")
    assert (uri.endpoint, uri.object_key) == ("storage.example.com", "a")
    assert OssUriObj("oss://bkt/a").get_uri_with_endpoint("http://h:80") == "oss://bkt.h:80/a"
    with refused(InvalidInputError, "endpoint"):
        OssUriObj("oss://bkt/a").get_uri_with_endpoint()
    with refused(ValueError, "'s3://bkt/a'"):
        OssUriObj("s3://bkt/a")


def test_bytes_are_uris_too() -> None:
    """alipai answers False."""
    assert [is_oss_uri(text) for text in ("oss://b/k", b"oss://b/k", "/oss://", b"s3://b")] == [
        True,
        True,
        False,
        False,
    ]


def test_random_texts_can_be_part_of_a_name() -> None:
    texts = {random_str(8) for _ in range(50)}
    assert len(texts) == 50
    assert {*"".join(texts)} <= {*string.ascii_lowercase, *string.digits}
