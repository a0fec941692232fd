"""A malicious server in place of OSS: it gets no key and no code, and stops no upload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.sync.recent import RecentTree, RecentTrees
from pai_sdk._data.storage.transfer import upload_tree
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import StorageError
from tests.support.fake_oss import FakeOss, StoredObject
from tests.support.messages import refused
from tests.unit.data.storage.conftest import BUCKET


def uri(key: str) -> OssUri:
    return OssUri(BUCKET, key)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nothing_goes_where_a_redirection_leads(oss: FakeOss, retry: RetryPolicy, status: int) -> None:
    """A temporary key's token, and what is put, would go along; and the response would be another server's."""
    elsewhere = FakeOss(BUCKET)
    elsewhere.buckets[BUCKET]["k"] = oss.buckets[BUCKET]["k"] = StoredObject(b"theirs")
    place = f"{elsewhere.endpoint.replace('127.0.0.1', 'localhost')}/{BUCKET}/k"
    oss.fail("page", status=status, message="", headers={"Location": place}, times=100)
    key = Credentials("key-id", "key-secret", "a-token")
    try:
        with OssClient(oss.endpoint, lambda: key, region="cn-test", retry=retry) as client:
            for ask in (client.get_bytes, client.head, lambda uri: client.put_bytes(uri, b"our code")):
                with refused(StorageError):
                    ask(uri("k"))
    finally:
        elsewhere.close()
    assert elsewhere.seen == []
    assert len(oss.seen) == 3  # asking again would change nothing


@pytest.mark.parametrize("wish", ["nan", "inf", "-inf", "1e9", "-1", "", "soon"])
def test_any_wish_for_a_pause_is_outlived(oss: FakeOss, wish: str) -> None:
    pauses: list[float] = []
    retry = RetryPolicy(max_attempts=2, sleep=pauses.append)
    oss.fail("status", status=503, headers={"Retry-After": wish})
    oss.buckets[BUCKET]["k"] = StoredObject(b"content")
    with OssClient(oss.endpoint, lambda: Credentials("id", "secret"), region="cn-test", retry=retry) as client:
        assert client.get_bytes(uri("k")) == b"content"
    assert len(pauses) == 1
    assert 0 <= pauses[0] <= retry.longest_pause_s


_DIGEST = "0123456789abcdef"


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"trees":' + b"[" * 200_000,
        b"1",
        b"null",
        b'{"trees": null}',
        b'{"trees": {"name": "x"}}',
        b'{"trees": [null]}',
        b'{"trees": [{"name": 1, "sketch": 2}]}',
        b'{"trees": [{"name": "../../other", "sketch": ["a"]}]}',
        b'{"trees": [{"name": "0123456789abcdee", "sketch": [[]]}]}',
        b'{"trees": [{"name": "0123456789abcdee", "sketch": [1e999]}]}',
        b'{"trees": [{"name": "0123456789abcdee", "sketch": ["b"], "algorithm": [{}]}]}',
        b'{"trees": [' + b"9" * 5000 + b"]}",
    ],
)
def test_a_list_of_trees_that_lies_is_none(oss: FakeOss, client: OssClient, lie: bytes) -> None:
    oss.buckets[BUCKET]["code/recent-trees.json"] = StoredObject(lie)
    trees = RecentTrees(client, uri(f"code/{_DIGEST}/"))
    assert trees.find_similar(RecentTree(_DIGEST, frozenset({"a"}))) is None
    trees.add(RecentTree(_DIGEST, frozenset({"a"})))
    assert json.loads(oss.buckets[BUCKET]["code/recent-trees.json"].content)["trees"][0]["name"] == _DIGEST


@pytest.mark.parametrize(
    "lie",
    [
        b"[" * 200_000,
        b"1",
        b'{"files": 1}',
        b'{"files": [1]}',
        b'{"files": [{"path": 1, "size": "x", "executable": null, "sha256": []}]}',
        b'{"files": [{"path": "a", "size": {}, "executable": [], "sha256": "b"}]}',
        b'{"files": [{"path": "\\ud800", "size": 1, "executable": false, "sha256": "b"}]}',
        b'{"files": [{"path": "../../../x", "size": 1, "executable": false, "sha256": "b", "etag": "e"}]}',
        b'{"files": [{"path": "a", "size": 1, "executable": false, "sha256": "b", "etag": ["e"]}]}',
    ],
)
def test_a_manifest_that_lies_stops_no_upload(oss: FakeOss, client: OssClient, tmp_path: Path, lie: bytes) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"content of {name}")
    tree = FileTree.scan(tmp_path)
    sketch = sorted(RecentTree.of(tree, uri("x/")).sketch)
    rows = [{"name": "0123456789abcdef", "sketch": sketch}]
    oss.buckets[BUCKET]["code/recent-trees.json"] = StoredObject(json.dumps({"trees": rows}).encode())
    oss.buckets[BUCKET]["code/0123456789abcdef.manifest.json"] = StoredObject(lie)
    folder = f"code/{tree.digest[:16]}"
    upload_tree(client, tree, uri(f"{folder}/"))
    assert oss.buckets[BUCKET][f"{folder}/a"].content == b"content of a"
