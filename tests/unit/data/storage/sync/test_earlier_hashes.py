"""Trees that were uploaded by an earlier release, or from a machine without BLAKE3."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.storage import content_hash
from pai_sdk._data.storage.content_hash import SMALL_BYTES
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.sync.manifest import manifest_uri
from pai_sdk._data.storage.sync.tree_index import is_folder_complete
from pai_sdk._data.storage.transfer import download, upload_tree
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import TransferError
from tests.support.fake_oss import FakeOss
from tests.support.waiting import PATIENCE_S
from tests.unit.data.storage.conftest import BUCKET

pytest.importorskip("blake3")

INDEX = "code/recent-trees.json"
SMALL = {f"m{number}.py": b"value = %d\n" % number for number in range(20)}
LARGE = {f"weights{number}": bytes([number]) * (SMALL_BYTES + 10 * number + 1) for number in range(4)}


@contextmanager
def without_blake3() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_hash, "has_blake3", lambda: False)
        yield


def write(root: Path, files: dict[str, bytes]) -> Path:
    root.mkdir(exist_ok=True)
    for name, content in files.items():
        (root / name).write_bytes(content)
    return root


def folder_of(tree: FileTree) -> OssUri:
    return OssUri(BUCKET, f"code/{tree.digest[:32]}/")


def upload(client: OssClient, root: Path) -> FileTree:
    tree = FileTree.scan(root)
    upload_tree(client, tree, folder_of(tree))
    return tree


def upload_by_earlier_release(client: OssClient, oss: FakeOss, root: Path) -> FileTree:
    with without_blake3():
        tree = upload(client, root)
    index = json.loads(oss.buckets[BUCKET][INDEX].content)
    for row in index["trees"]:
        del row["algorithm"]
    client.put_bytes(OssUri(BUCKET, INDEX), json.dumps(index).encode())
    return tree


def sent(oss: FakeOss) -> set[str]:
    """The files that came over the wire."""
    names = {
        seen.key.rpartition("/")[2]
        for seen in oss.seen
        if seen.method in ("PUT", "POST") and "x-oss-copy-source" not in seen.headers
    }
    return {name for name in names if "json" not in name}


@pytest.mark.parametrize("files", [LARGE, SMALL | LARGE, {"single": b"x" * 100_000}], ids=["large", "both", "one"])
def test_what_an_earlier_release_uploaded_is_not_sent_again(
    client: OssClient, oss: FakeOss, tmp_path: Path, files: dict[str, bytes]
) -> None:
    earlier = upload_by_earlier_release(client, oss, write(tmp_path / "src", files))
    oss.seen.clear()
    tree = upload(client, tmp_path / "src")
    assert tree.digest != earlier.digest
    assert sent(oss) == set()
    assert FileTree.scan(download(client, folder_of(tree), tmp_path / "down")).digest == tree.digest
    assert is_folder_complete(client, folder_of(earlier))
    oss.seen.clear()
    upload(client, tmp_path / "src")
    assert sent(oss) == set()


def test_trees_of_small_files_keep_their_folder(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    earlier = upload_by_earlier_release(client, oss, write(tmp_path, SMALL))
    oss.seen.clear()
    assert upload(client, tmp_path).digest == earlier.digest
    assert [seen.method for seen in oss.seen] == ["GET"]


def test_a_changed_tree_shares_files_with_that_of_an_earlier_release(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    upload_by_earlier_release(client, oss, write(tmp_path, SMALL | LARGE))
    oss.seen.clear()
    write(tmp_path, {"m0.py": b"changed", "weights1": LARGE["weights1"].upper() + b"!"})
    write(tmp_path, {"weights2": LARGE["weights3"]})
    upload(client, tmp_path)
    assert sent(oss) == {"m0.py", "weights1"}


def test_machines_with_and_without_it_share_what_they_can(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    root = write(tmp_path / "src", SMALL | LARGE)
    trees = [upload(client, root)]
    oss.seen.clear()
    with without_blake3():
        trees.append(upload(client, root))
    assert sent(oss) == {*LARGE}
    oss.seen.clear()
    write(root, {"m1.py": b"changed"})
    trees.append(upload(client, root))
    assert sent(oss) == {"m1.py"}
    write(root, {"m1.py": SMALL["m1.py"]})
    for number, tree in enumerate(trees[:2]):
        found = FileTree.scan(download(client, folder_of(tree), tmp_path / f"down{number}"))
        assert found.digest == trees[0].digest


def test_uploads_of_both_kinds_in_turns_send_only_what_changed(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    root = write(tmp_path / "src", SMALL | LARGE)
    upload_by_earlier_release(client, oss, root)
    upload(client, root)
    for number in range(4):
        write(root, {"m1.py": b"changed %d" % number})
        oss.seen.clear()
        if number % 2:
            upload(client, root)
        else:
            upload_by_earlier_release(client, oss, root)
        assert sent(oss) <= {"m1.py"}


def test_nothing_is_hashed_for_trees_that_have_a_blake3(
    client: OssClient, oss: FakeOss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(client, write(tmp_path / "one", {"a": b"1" * 100_000, "b": b"2" * 100_000}))
    monkeypatch.setattr("pai_sdk._data.storage.tree.sha256_of_file", lambda *_: pytest.fail("it is read again"))
    monkeypatch.setattr(
        "pai_sdk._data.storage.sync.tree_index.sha256_of_file", lambda *_: pytest.fail("it is read again")
    )
    upload(client, write(tmp_path / "two", {"a": b"3" * 100_000, "b": b"4" * 100_000}))


class Endless(FileIO):
    """A file so large that Ctrl-C comes while it is read."""

    has_ended = False
    deadline_s = 0.0

    def readinto(self, buffer: Any) -> int:
        if not Endless.deadline_s:
            Endless.deadline_s = time.monotonic() + PATIENCE_S
            signal.raise_signal(signal.SIGINT)  # in this thread, so that it wakes no other
        Endless.has_ended |= time.monotonic() > Endless.deadline_s
        return 0 if Endless.has_ended else len(buffer)


@pytest.mark.parametrize("when", ["to find the earlier tree", "to find a file in it"])
def test_an_interrupt_ends_the_hashing_for_trees_of_earlier_releases(
    client: OssClient, oss: FakeOss, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    small = {"small": b"1"} if when == "to find a file in it" else {}
    upload_by_earlier_release(client, oss, write(tmp_path / "one", {**small, "a": b"1" * 100_000}))
    tree = FileTree.scan(write(tmp_path / "two", {**small, "a": b"2" * 100_000}))
    monkeypatch.setattr(content_hash, "FileIO", Endless)
    for name in ("has_ended", "deadline_s"):
        monkeypatch.setattr(Endless, name, type(getattr(Endless, name))())
    with pytest.raises(KeyboardInterrupt):
        upload_tree(client, tree, folder_of(tree))
    assert not Endless.has_ended


def relabel(entry: dict[str, object]) -> None:
    entry["sha256"] = entry.pop("blake3")


def give_both(entry: dict[str, object]) -> None:
    entry["sha256"] = "0" * 64


def tag_within(entry: dict[str, object]) -> None:
    entry["sha256"] = f"blake3:{entry.pop('blake3')}"


def of_another_release(entry: dict[str, object]) -> None:
    entry["blake4"] = entry.pop("blake3")


@pytest.mark.parametrize("lie", [relabel, tag_within, of_another_release, give_both])
def test_a_hash_of_another_algorithm_is_not_believed(
    client: OssClient, oss: FakeOss, tmp_path: Path, lie: Callable[[dict[str, object]], None]
) -> None:
    uri = manifest_uri(folder_of(upload(client, write(tmp_path / "src", LARGE))))
    manifest = json.loads(oss.buckets[BUCKET][uri.key].content)
    for entry in manifest["files"]:
        lie(entry)
    client.put_bytes(uri, json.dumps(manifest).encode())
    oss.seen.clear()
    tree = upload(client, write(tmp_path / "src", {"weights0": b"new" * 100_000}))
    assert sent(oss) == ({"weights0"} if lie is give_both else {*LARGE})
    assert FileTree.scan(download(client, folder_of(tree), tmp_path / "down")).digest == tree.digest


@pytest.mark.parametrize("size_bytes", [0, 10, 100_000])
def test_a_file_that_changes_after_it_was_hashed_is_an_error(
    client: OssClient, oss: FakeOss, tmp_path: Path, size_bytes: int
) -> None:
    upload_by_earlier_release(client, oss, write(tmp_path, {"a": b"1" * size_bytes, "b": b"2"}))
    write(tmp_path, {"c": b"3"})
    tree = FileTree.scan(tmp_path)
    write(tmp_path, {"a": b"4" * (size_bytes or 1), "c": b"5"})
    with pytest.raises(TransferError) as caught:
        upload_tree(client, tree, folder_of(tree))
    assert "c" in caught.value.failures
    assert manifest_uri(folder_of(tree)).key not in oss.buckets[BUCKET]
