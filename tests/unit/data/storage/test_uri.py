from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._core.endpoint import host_of, is_loopback, region_of, with_scheme
from pai_sdk._data.storage.uri import OssUri, is_remote_uri, remote_uri_problems, uri_scheme
from pai_sdk.errors import InvalidInputError, SettingsError
from tests.support.messages import refused

buckets = st.from_regex(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", fullmatch=True)
hosts = st.from_regex(r"[a-z0-9]+([.-][a-z0-9]+){0,3}(:[1-9][0-9]{0,3})?", fullmatch=True)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
keys = names.filter(lambda key: not key.startswith(("/", "\\")) and key not in (".", ".."))


@given(bucket=buckets, endpoint=st.none() | hosts, key=keys)
def test_what_is_written_is_read_back(bucket: str, endpoint: str | None, key: str) -> None:
    uri = OssUri(bucket, key, endpoint)
    assert OssUri.parse(str(uri)) == uri


@given(text=st.text(max_size=80))
def test_any_text_is_a_uri_or_an_invalid_input(text: str) -> None:
    for candidate in (text, f"oss://{text}", f"oss://bucket/{text}"):
        try:
            uri = OssUri.parse(candidate)
        except InvalidInputError:
            continue
        assert str(uri).rstrip("/") == candidate.rstrip("/")


@given(folder=keys, name=names.filter(bool))
def test_join_goes_below_and_keeps_the_name(folder: str, name: str) -> None:
    base = OssUri("bucket", folder)
    if not folder and (name.startswith(("/", "\\")) or name in (".", "..")):
        return
    joined = base.join(name)
    assert joined.key == base.as_dir().key + name
    assert base.as_dir().is_dir


@pytest.mark.parametrize(
    ("text", "bucket", "endpoint", "key"),
    [
        ("oss://models", "models", None, ""),
        ("oss://models/a#b?c=d&e%20f", "models", None, "a#b?c=d&e%20f"),
        ("oss://models/x?endpoint=other.example.com", "models", None, "x?endpoint=other.example.com"),
        ("oss://models.oss-cn-hangzhou.aliyuncs.com/k", "models", "oss-cn-hangzhou.aliyuncs.com", "k"),
        ("oss://models.127.0.0.1:8765/Runs/", "models", "127.0.0.1:8765", "Runs/"),
        ("oss://models.https.example.com/k", "models", "https.example.com", "k"),
        ("oss://models.localhost:80/日本/ \n'\"", "models", "localhost:80", "日本/ \n'\""),
    ],
)
def test_parts(text: str, bucket: str, endpoint: str | None, key: str) -> None:
    uri = OssUri.parse(text)
    assert (uri.bucket, uri.endpoint, uri.key) == (bucket, endpoint, key)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s3://bucket/key", "write oss://bucket/key"),
        ("OSS://bucket/key", "write oss://bucket/key"),
        ("oss://", "not a bucket name"),
        ("oss:///key", "not a bucket name"),
        ("oss://Bucket/key", "not a bucket name"),
        ("oss://ab/key", "not a bucket name"),
        ("oss://a_b_c/key", "not a bucket name"),
        ("oss://-abc/key", "not a bucket name"),
        (f"oss://{'a' * 64}/key", "not a bucket name"),
        ("oss://bucket:8080/key", "a port needs a host"),
        ("oss://bucket./key", "not an endpoint"),
        ("oss://bucket.host:99999/key", "not a port"),
        ("oss://bucket.user@host/key", "not an endpoint"),
        ("oss://bucket.[::1]:8080/key", "write a host name"),
        ("oss://bucket//key", "must not start with / or"),
        ("oss://bucket/..", "choose another name"),
        (f"oss://bucket/{'é' * 512}", "1024 bytes"),
        ("oss://bucket/\ud800", "not UTF-8"),
    ],
)
def test_bad_uris_say_what_to_write(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        OssUri.parse(text)
    assert says in str(caught.value)
    assert len(caught.value.problems) == 1


def test_names_and_folders() -> None:
    uri = OssUri.parse("oss://bucket/a/b.txt")
    assert (uri.name, uri.is_dir, uri.as_dir().key) == ("b.txt", False, "a/b.txt/")
    assert OssUri.parse("oss://bucket").is_dir
    assert OssUri.parse("oss://bucket/a/b/").name == "b"


@pytest.mark.parametrize(
    ("text", "scheme", "remote"),
    [
        ("oss://b/k", "oss", True),
        ("nas://x.cn-hangzhou/", "nas", True),
        ("cpfs://x/", "cpfs", True),
        ("bmcpfs://x/", "bmcpfs", True),
        ("odps://p/tables/t", "odps", True),
        ("http://example.com", "http", False),
        ("./oss://x", None, False),
        ("C:/data", None, False),
        ("data", None, False),
    ],
)
def test_schemes(text: str, scheme: str | None, remote: bool) -> None:
    assert uri_scheme(text) == scheme
    assert is_remote_uri(text) is remote


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("odps://project/tables/clicks", None),
        ("odps://project/tables/clicks/dt=1", None),
        ("odps://project/clicks", "odps://project/tables/table"),
        ("nas://fs-1.cn-hangzhou.nas.aliyuncs.com/data/", None),
        ("nas:///data", "nas://file-system/path/"),
        ("oss://Bad/key", "3 to 63"),
        ("ftp://host/file", "is not a URI of bmcpfs://"),
    ],
)
def test_remote_uri_problems(text: str, says: str | None) -> None:
    problems = remote_uri_problems(text, "inputs['train']")
    assert [problem.where for problem in problems] == ([] if says is None else ["inputs['train']"])
    assert says is None or says in str(problems[0])


@pytest.mark.parametrize(
    ("endpoint", "url", "region", "loopback"),
    [
        ("oss-cn-hangzhou.aliyuncs.com", "https://oss-cn-hangzhou.aliyuncs.com", "cn-hangzhou", False),
        ("http://oss-cn-beijing-internal.aliyuncs.com", None, "cn-beijing", False),
        ("https://storage.example.com/", "https://storage.example.com", None, False),
        ("https://https.example.com:8443", None, None, False),
        ("http://pth.example.com", None, None, False),
        ("oss-accelerate.aliyuncs.com", "https://oss-accelerate.aliyuncs.com", None, False),
        ("http://127.0.0.1:9", "http://127.0.0.1:9", None, True),
        ("localhost:80", "http://localhost:80", None, True),
    ],
)
def test_endpoints(endpoint: str, url: str | None, region: str | None, loopback: bool) -> None:
    assert with_scheme(endpoint) == (url or endpoint)
    assert (region_of(endpoint), is_loopback(endpoint)) == (region, loopback)
    assert host_of(endpoint) == (url or endpoint).split("/")[2]


@pytest.mark.parametrize("endpoint", ["", "ftp://host", "host/path", "user@host", "a b"])
def test_bad_endpoints(endpoint: str) -> None:
    with refused(SettingsError):
        with_scheme(endpoint)


@pytest.mark.parametrize(
    "endpoint", ["http://[::1]:8080", "[fe80::1]", "https://[::ffff:1.2.3.4]/", "::1", "2001:db8::7"]
)
def test_ipv6_addresses_are_refused_as_what_they_are(endpoint: str) -> None:
    with refused(SettingsError):
        with_scheme(endpoint)


def test_paths_have_no_scheme() -> None:
    texts = ("nas://0a1b2c.cn-hangzhou/data/", "./data", "C:/data")
    assert [uri_scheme(text) for text in texts] == ["nas", None, None]


def test_a_table_is_read_by_the_service_and_a_path_is_not() -> None:
    assert is_remote_uri("odps://project/tables/clicks")
    assert not is_remote_uri("/mnt/data")
