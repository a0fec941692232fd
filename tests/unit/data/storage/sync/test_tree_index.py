"""What lies in a folder named by its content is looked at, file by file, before a job runs it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.sync import tree_index
from pai_sdk._data.storage.sync.manifest import manifest_uri
from pai_sdk._data.storage.sync.tree_index import is_folder_complete
from pai_sdk._data.storage.transfer import download, upload_tree
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import InvalidInputError, StorageError
from tests.support.fake_oss import FakeOss, Seen, StoredObject
from tests.support.messages import refused
from tests.unit.data.storage.conftest import BUCKET

FILES = {"train.py": "main", "lib/a.py": "a = 1", "lib/b.py": "b = 1", "日本/x y.txt": "x", "empty": ""}


@pytest.fixture
def tree(tmp_path: Path) -> FileTree:
    for name, text in FILES.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(text)
    return FileTree.scan(tmp_path / "src")


def folder_of(tree: FileTree) -> OssUri:
    return OssUri(BUCKET, f"code/{tree.digest[:32]}/")


def upload(client: OssClient, tree: FileTree) -> int:
    return upload_tree(client, tree, folder_of(tree))


def objects_of(oss: FakeOss, tree: FileTree) -> dict[str, StoredObject]:
    """The objects in the tree's folder, by path."""
    beginning = folder_of(tree).key
    every = oss.buckets[BUCKET]
    return {key.removeprefix(beginning): every[key] for key in every if key.startswith(beginning)}


def put(oss: FakeOss, tree: FileTree, path: str, found: StoredObject) -> None:
    oss.buckets[BUCKET][folder_of(tree).join(path).key] = found


def sent(oss: FakeOss, tree: FileTree) -> list[str]:
    keys = [seen.key for seen in oss.seen if seen.method in ("PUT", "POST")]
    return [key.removeprefix(folder_of(tree).key) for key in keys if key.startswith(folder_of(tree).key)]


def change_it(oss: FakeOss, tree: FileTree) -> None:
    put(oss, tree, "lib/a.py", StoredObject(b"a = 2"))


def shorten_it(oss: FakeOss, tree: FileTree) -> None:
    put(oss, tree, "lib/a.py", StoredObject(b"a"))


def delete_it(oss: FakeOss, tree: FileTree) -> None:
    del oss.buckets[BUCKET][folder_of(tree).join("lib/a.py").key]


def change_it_and_the_manifest(oss: FakeOss, tree: FileTree) -> None:
    change_it(oss, tree)
    manifest = oss.buckets[BUCKET][manifest_uri(folder_of(tree)).key]
    content = json.loads(manifest.content)
    for file in content["files"]:
        if file["path"] == "lib/a.py":
            file["etag"] = objects_of(oss, tree)["lib/a.py"].etag
    manifest.content = json.dumps(content).encode()


def change_what_came_first(oss: FakeOss, tree: FileTree) -> None:
    """As a copy of something else, whose ETag is no MD5."""
    put(oss, tree, "lib/a.py", StoredObject(b"a = 3", etag="F" * 32))


@pytest.mark.parametrize(
    "damage", [change_it, shorten_it, delete_it, change_it_and_the_manifest, change_what_came_first]
)
def test_only_what_differs_is_sent_again(
    client: OssClient, oss: FakeOss, tree: FileTree, tmp_path: Path, damage: Callable[[FakeOss, FileTree], None]
) -> None:
    upload(client, tree)
    damage(oss, tree)
    oss.seen.clear()
    assert upload(client, tree) == 1
    assert sent(oss, tree) == ["lib/a.py"]
    assert FileTree.scan(download(client, folder_of(tree), tmp_path / "down")).digest == tree.digest
    assert upload(client, tree) == 0


@pytest.mark.parametrize(
    ("storage_class", "again"),
    [("Standard", 0), ("IA", 0), ("", 0), ("Archive", 1), ("ColdArchive", 1), ("DeepColdArchive", 1)],
)
def test_an_archived_file_cannot_be_read_by_a_job_and_is_sent_again(
    client: OssClient, oss: FakeOss, tree: FileTree, storage_class: str, again: int
) -> None:
    upload(client, tree)
    objects_of(oss, tree)["train.py"].storage_class = storage_class
    assert upload(client, tree) == again
    assert "rchive" not in objects_of(oss, tree)["train.py"].storage_class


def test_a_file_that_does_not_belong_there_is_refused(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    upload(client, tree)
    put(oss, tree, "sitecustomize.py", StoredObject(b"import evil"))
    put(oss, tree, "lib/__pycache__/a.pyc", StoredObject(b"evil"))
    put(oss, tree, "lib/", StoredObject(b""))  # as the console makes them
    put(oss, tree, "", StoredObject(b""))
    oss.buckets[BUCKET][f"{folder_of(tree).key[:-1]}-mine/x"] = StoredObject(b"another folder")
    oss.seen.clear()
    with refused(InvalidInputError) as caught:
        upload(client, tree)
    assert sorted(problem.where for problem in caught.value.problems) == [
        f"{folder_of(tree)}lib/__pycache__/a.pyc",
        f"{folder_of(tree)}sitecustomize.py",
    ]
    assert sent(oss, tree) == []
    for path in ("sitecustomize.py", "lib/__pycache__/a.pyc"):
        del oss.buckets[BUCKET][folder_of(tree).join(path).key]
    assert upload(client, tree) == 0


def test_the_first_of_many_such_files_are_named(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    for number in range(1_500):
        put(oss, tree, f"more/{number:04}", StoredObject(b"x"))
    with pytest.raises(InvalidInputError, match="holds 1480 more files that do not belong there"):
        upload(client, tree)


def test_a_thousand_unchanged_files_are_one_request(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    for number in range(2_001):
        (tmp_path / f"{number:04}").write_text(f"{number}")
    tree = FileTree.scan(tmp_path)
    for entry in tree.entries:
        put(oss, tree, entry.path, StoredObject((tmp_path / entry.path).read_bytes()))
    assert upload(client, tree) == 0  # a manifest was missing, and nothing else
    assert manifest_uri(folder_of(tree)).key in oss.buckets[BUCKET]
    oss.seen.clear()
    assert upload(client, tree) == 0
    assert [seen.method for seen in oss.seen] == ["GET"] * 3


@pytest.mark.parametrize("looks", [["GET", "HEAD"], ["GET"]])
def test_a_key_that_may_only_write_sends_everything_and_says_so_once(
    client: OssClient, oss: FakeOss, tree: FileTree, caplog: pytest.LogCaptureFixture, looks: list[str]
) -> None:
    def is_a_look(seen: Seen) -> bool:
        return seen.method in looks

    oss.fail("status", times=99_999, status=403, code="AccessDenied", fits=is_a_look)
    for _ in range(2):
        assert upload(client, tree) == len(FILES)
    assert {name: found.content for name, found in objects_of(oss, tree).items()} == {
        name: text.encode() for name, text in FILES.items()
    }
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"the key may not list or read bucket {BUCKET}, so all files are sent each time")
    assert "oss:ListObjects" in warnings[0]
    assert is_folder_complete(client, folder_of(tree))  # as far as anybody knows


def test_such_a_key_gets_through_a_lost_answer(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    """Whether the large file has come to be, it may not look; so it sends it once more."""
    client.part_sizes = PartSizes(1 << 16)
    (tree.root / "weights").write_bytes(os.urandom(200_000))
    tree = FileTree.scan(tree.root)
    oss.fail("lost", fits=lambda seen: seen.method == "POST" and "uploadId" in seen.query)
    oss.fail(
        "status", times=999, status=403, code="AccessDenied", fits=lambda seen: seen.method in ("GET", "HEAD")
    )
    assert upload(client, tree) == len(tree.entries)
    assert objects_of(oss, tree)["weights"].content == (tree.root / "weights").read_bytes()


def test_other_refusals_are_errors(client: OssClient, oss: FakeOss, tree: FileTree) -> None:
    oss.fail("status", times=99, status=403, code="InvalidAccessKeyId")
    with refused(StorageError, code="InvalidAccessKeyId"):
        upload(client, tree)


class TestObjectsWhoseETagIsNoMd5:
    """They came in parts, are copies, or the bucket encrypts with KMS: the manifest knows them."""

    @pytest.fixture
    def tree(self, tree: FileTree, client: OssClient) -> FileTree:
        client.part_sizes = PartSizes(1 << 16)
        (tree.root / "weights").write_bytes(os.urandom(200_000))
        return FileTree.scan(tree.root)

    def test_unchanged(self, client: OssClient, oss: FakeOss, tree: FileTree) -> None:
        upload(client, tree)
        assert objects_of(oss, tree)["weights"].kind == "Multipart"
        oss.seen.clear()
        assert upload(client, tree) == 0
        assert len(oss.seen) == 2

    def test_changed(self, client: OssClient, oss: FakeOss, tree: FileTree) -> None:
        upload(client, tree)
        put(oss, tree, "weights", StoredObject(bytes(200_000), kind="Multipart", etag="A" * 32 + "-4"))
        assert upload(client, tree) == 1
        assert objects_of(oss, tree)["weights"].content == (tree.root / "weights").read_bytes()

    @pytest.mark.parametrize("manifest", [None, b"", b"[]", b'{"files": [1]}'])
    def test_without_a_manifest_they_are_sent_again(
        self, client: OssClient, oss: FakeOss, tree: FileTree, manifest: bytes | None
    ) -> None:
        upload(client, tree)
        uri = manifest_uri(folder_of(tree))
        client.delete(uri) if manifest is None else client.put_bytes(uri, manifest)
        assert upload(client, tree) == 1
        assert upload(client, tree) == 0

    def test_of_a_bucket_that_encrypts(
        self, client: OssClient, oss: FakeOss, tree: FileTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(StoredObject, "__post_init__", _give_any_etag)
        upload(client, tree)
        assert upload(client, tree) == 0
        change_it(oss, tree)
        assert upload(client, tree) == 1


def _give_any_etag(found: StoredObject) -> None:
    found.meta = {**found.meta, "x-oss-server-side-encryption": "KMS"}
    found.etag = found.etag or os.urandom(16).hex().upper()


def test_a_large_tree_is_not_hashed_again(
    client: OssClient, oss: FakeOss, tree: FileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(client, tree)
    client.part_sizes = PartSizes(quick_hash_bytes=0)
    hashed: list[str] = []
    monkeypatch.setattr(tree_index, "_has_md5", lambda tree, number, md5: hashed.append(md5))
    assert upload(client, tree) == 0
    assert hashed == []


class TestAFolderWithoutItsFilesHere:
    """As for a plan that was loaded from a file."""

    def test_whole(self, client: OssClient, oss: FakeOss, tree: FileTree) -> None:
        assert not is_folder_complete(client, folder_of(tree))
        upload(client, tree)
        oss.seen.clear()
        assert is_folder_complete(client, folder_of(tree))
        assert len(oss.seen) == 2

    @pytest.mark.parametrize("damage", [change_it, shorten_it, delete_it, change_what_came_first])
    def test_damaged(
        self, client: OssClient, oss: FakeOss, tree: FileTree, damage: Callable[[FakeOss, FileTree], None]
    ) -> None:
        upload(client, tree)
        damage(oss, tree)
        assert not is_folder_complete(client, folder_of(tree))

    def test_archived(self, client: OssClient, oss: FakeOss, tree: FileTree) -> None:
        upload(client, tree)
        objects_of(oss, tree)["train.py"].storage_class = "Archive"
        assert not is_folder_complete(client, folder_of(tree))

    def test_with_a_file_that_does_not_belong_there(self, client: OssClient, oss: FakeOss, tree: FileTree) -> None:
        upload(client, tree)
        put(oss, tree, "sitecustomize.py", StoredObject(b"import evil"))
        with pytest.raises(InvalidInputError, match=r"sitecustomize\.py"):
            is_folder_complete(client, folder_of(tree))
