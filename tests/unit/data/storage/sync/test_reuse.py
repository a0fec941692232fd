"""Files that OSS has already are not sent again."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pai_sdk._data.storage.content_hash import hexadecimal
from pai_sdk._data.storage.objects import PartSizes
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.sync.manifest import manifest_uri
from pai_sdk._data.storage.transfer import download, upload_tree
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import TransferError
from tests.support.fake_oss import FakeOss, Seen, StoredObject
from tests.support.waiting import PATIENCE_S
from tests.unit.data.storage.conftest import BUCKET

INDEX = "code/recent-trees.json"
FILES = {f"lib/m{number}.py": f"value = {number}\n" for number in range(20)} | {
    "train.py": "main",
    "lib/empty": "",
}


def write(root: Path, files: dict[str, str]) -> FileTree:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return FileTree.scan(root)


def folder_of(tree: FileTree) -> OssUri:
    return OssUri(BUCKET, f"code/{tree.digest[:32]}/")


def upload(client: OssClient, tree: FileTree) -> int:
    return upload_tree(client, tree, folder_of(tree))


def sent(oss: FakeOss) -> list[str]:
    """What came over the wire, without the folders' names."""
    puts = (seen.key for seen in oss.seen if seen.method in ("PUT", "POST") and not copied(seen))
    return sorted(key.split("/", 2)[-1] for key in puts if key.count("/") > 1)


def copied(seen: Seen) -> bool:
    return "x-oss-copy-source" in seen.headers


def must_be_whole(client: OssClient, tree: FileTree, target: Path) -> None:
    assert FileTree.scan(download(client, folder_of(tree), target)).digest == tree.digest


def test_one_changed_file_is_one_file_sent(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    assert upload(client, write(tmp_path / "src", FILES)) == len(FILES)
    changed = write(tmp_path / "src", {"train.py": "changed"})
    oss.seen.clear()
    assert upload(client, changed) == 1
    assert sent(oss) == ["train.py"]
    # The listing, the list of trees, the earlier manifest; a copy or an upload a file; manifest and list.
    assert len(oss.seen) == 3 + len(FILES) + 1 + 2
    assert oss.seen[-3].key == manifest_uri(folder_of(changed)).key
    must_be_whole(client, changed, tmp_path / "down")


def test_an_unchanged_tree_is_two_requests_at_most(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    upload(client, write(tmp_path / "src", FILES))
    of_copies = write(tmp_path / "src", {"train.py": "changed"})
    upload(client, of_copies)
    listing, manifest = ("GET", ""), ("GET", manifest_uri(folder_of(of_copies)).key)
    oss.seen.clear()
    assert upload(client, of_copies) == 0
    assert [(seen.method, seen.key) for seen in oss.seen] == [listing, manifest]
    oss.seen.clear()
    assert upload(client, write(tmp_path / "src", FILES)) == 0
    assert [(seen.method, seen.key) for seen in oss.seen] == [listing]


def test_a_new_tree_costs_three_requests_beside_its_files(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    upload(client, write(tmp_path, FILES))
    # Listing and list of trees, files, manifest, list (read once more, as others may have written it).
    assert Counter(seen.method for seen in oss.seen) == {"GET": 3, "PUT": len(FILES) + 2}


def test_copies_are_like_uploads(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    tree = write(tmp_path / "src", FILES)
    (tmp_path / "src" / "train.py").chmod(0o755)
    upload(client, tree)
    (tmp_path / "src" / "lib" / "m1.py").chmod(0o755)
    (tmp_path / "src" / "lib" / "m2.py").rename(tmp_path / "src" / "m2.txt")
    shutil.copytree(tmp_path / "src" / "lib", tmp_path / "src" / "twin")
    moved = FileTree.scan(tmp_path / "src")
    oss.seen.clear()
    assert upload(client, moved) == 0
    assert sent(oss) == []
    objects = oss.buckets[BUCKET]
    for entry in moved.entries:
        meta = objects[folder_of(moved).join(entry.path).key].meta
        assert meta["x-oss-meta-pai-sha256"] == hexadecimal(entry.digest)
        assert (meta.get("x-oss-meta-pai-executable") == "true") == entry.executable
    types = {seen.key.rpartition("/")[2]: seen.headers["content-type"] for seen in oss.seen if copied(seen)}
    assert types["m2.txt"] == "text/plain"
    must_be_whole(client, moved, tmp_path / "down")


def test_a_copy_is_copied_again(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    """Its ETag is another one than that of the file that was uploaded."""
    for step in range(3):
        oss.seen.clear()
        upload(client, write(tmp_path, FILES | {"train.py": f"step {step}"}))
    assert sent(oss) == ["train.py"]


def test_the_folders_name_and_the_uploader_do_not_matter(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    upload(client, write(tmp_path / "project", FILES))
    for number in range(30):
        upload(client, write(tmp_path / f"other{number}", {f"{number}-{i}": f"{number} {i}" for i in range(3)}))
    oss.seen.clear()
    upload(client, write(tmp_path / "pai-git-x1", FILES | {"train.py": "changed"}))
    assert sent(oss) == ["train.py"]


def test_the_most_similar_tree_is_taken(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    other = {f"lib/m{number}.py": f"other {number}\n" for number in range(15)}
    upload(client, write(tmp_path / "one", FILES))
    upload(client, write(tmp_path / "two", FILES | other))
    oss.seen.clear()
    upload(client, write(tmp_path / "one", {"train.py": "changed"}))
    assert sent(oss) == ["train.py"]
    oss.seen.clear()
    upload(client, write(tmp_path / "two", {"train.py": "changed"}))
    assert sent(oss) == ["train.py"]


def delete_some(oss: FakeOss, earlier: FileTree) -> None:
    for name in ("lib/m3.py", "lib/m4.py"):
        del oss.buckets[BUCKET][folder_of(earlier).join(name).key]


def replace_some(oss: FakeOss, earlier: FileTree) -> None:
    for name in ("lib/m3.py", "lib/m4.py"):
        found = oss.buckets[BUCKET][folder_of(earlier).join(name).key]
        found.content, found.etag = b"something else", "0" * 32


@pytest.mark.parametrize("damage", [delete_some, replace_some])
def test_what_is_gone_or_another_one_is_uploaded(
    client: OssClient, oss: FakeOss, tmp_path: Path, damage: Callable[[FakeOss, FileTree], None]
) -> None:
    earlier = write(tmp_path / "src", FILES)
    upload(client, earlier)
    damage(oss, earlier)
    changed = write(tmp_path / "src", {"train.py": "changed"})
    oss.seen.clear()
    assert upload(client, changed) == 3
    assert sent(oss) == ["lib/m3.py", "lib/m4.py", "train.py"]
    must_be_whole(client, changed, tmp_path / "down")


def test_a_tree_that_is_gone_is_not_asked_for_ever(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    many = {f"m{number}": f"{number}" for number in range(200)}
    earlier = write(tmp_path, many)
    upload(client, earlier)
    for name in many:
        del oss.buckets[BUCKET][folder_of(earlier).join(name).key]
    oss.seen.clear()
    assert upload(client, write(tmp_path, {"m0": "changed"})) == 200
    assert sum(map(copied, oss.seen)) < 40


@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (501, "NotImplemented"), (409, "FileImmutable")]
)
def test_where_copying_is_refused_all_is_uploaded(
    client: OssClient, oss: FakeOss, tmp_path: Path, status: int, code: str
) -> None:
    upload(client, write(tmp_path, FILES))
    oss.fail("status", times=10_000, status=status, code=code, fits=copied)
    assert upload(client, write(tmp_path, {"train.py": "changed"})) == len(FILES)


@pytest.mark.parametrize("kind", ["reset", "lost", "status", "html", "truncate"])
def test_copies_go_through_faults(client: OssClient, oss: FakeOss, tmp_path: Path, kind: str) -> None:
    upload(client, write(tmp_path / "src", FILES))
    changed = write(tmp_path / "src", {"train.py": "changed"})
    oss.seen.clear()
    oss.fail(kind, times=3, fits=copied)
    assert upload(client, changed) == 1
    must_be_whole(client, changed, tmp_path / "down")


def test_a_dead_line_is_one_error(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    upload(client, write(tmp_path, FILES))
    oss.fail("reset", times=10_000, fits=lambda seen: seen.method == "PUT")
    with pytest.raises(TransferError, match="all recent ones failed"):
        upload(client, write(tmp_path, {"train.py": "changed"}))
    assert sent(oss) == sorted(FILES)  # those of the first upload; nothing was tried after the copies


def test_large_files_that_came_in_parts_are_copied(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    client.part_sizes = PartSizes(1 << 16)
    write(tmp_path / "src", FILES)
    (tmp_path / "src" / "weights").write_bytes(os.urandom(300_000))
    upload(client, FileTree.scan(tmp_path / "src"))
    changed = write(tmp_path / "src", {"train.py": "changed"})
    oss.seen.clear()
    assert upload(client, changed) == 1
    assert sent(oss) == ["train.py"]
    must_be_whole(client, changed, tmp_path / "down")


@pytest.fixture
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of copies that a test can exceed."""
    monkeypatch.setattr("pai_sdk._data.storage.sync.tree_index._MAX_COPY_BYTES", 100_000)
    monkeypatch.setattr("pai_sdk._data.storage.oss.parts._COPIED_PART_BYTES", 100_000)


@pytest.mark.usefixtures("small_copies")
@pytest.mark.parametrize("damage", [None, "another source", "another copy", "a failure"])
def test_files_that_are_too_large_for_one_copy_are_copied_in_parts(
    client: OssClient, oss: FakeOss, tmp_path: Path, damage: str | None
) -> None:
    write(tmp_path / "src", FILES)
    weights = os.urandom(250_001)
    (tmp_path / "src" / "weights").write_bytes(weights)
    earlier = FileTree.scan(tmp_path / "src")
    upload(client, earlier)
    changed = write(tmp_path / "src", {"train.py": "changed"})
    source = folder_of(earlier).join("weights")
    if damage == "another source":
        client.put_bytes(source, weights[::-1])
    elif damage == "another copy":
        stored = oss.buckets[BUCKET][source.key]
        oss.buckets[BUCKET][source.key] = StoredObject(weights[::-1], stored.meta, etag=stored.etag)
    elif damage == "a failure":
        oss.fail("status", times=100, status=403, fits=lambda seen: copied(seen) and bool(seen.query))
    oss.seen.clear()
    assert upload(client, changed) == (2 if damage else 1)
    parts = {seen.query["partNumber"] for seen in oss.seen if copied(seen) and "partNumber" in seen.query}
    assert parts == ({"1", "2", "3"} if damage in (None, "another copy") else {"1"})
    puts = {seen.key.rpartition("/")[2] for seen in oss.seen if seen.method == "PUT" and not copied(seen)}
    assert ("weights" in puts) is bool(damage)
    assert oss.uploads == {}
    assert oss.buckets[BUCKET][folder_of(changed).join("weights").key].content == weights
    must_be_whole(client, changed, tmp_path / "down")


SPOILT = [
    b"",
    b"{",
    b"[]",
    b'{"trees": [{"name": 7, "sketch": []}]}',
    b'{"trees": [{"name": "../../elsewhere", "sketch": ["00000000"]}]}',
    b'{"trees": [7]}',
    b'{"trees": {"name": [[]]}}',
    b"\xff\xfe",
]


@pytest.mark.parametrize("content", SPOILT)
def test_a_spoilt_list_of_trees_is_replaced(
    client: OssClient, oss: FakeOss, tmp_path: Path, content: bytes
) -> None:
    client.put_bytes(OssUri(BUCKET, INDEX), content)
    assert upload(client, write(tmp_path, FILES)) == len(FILES)
    assert upload(client, write(tmp_path, {"train.py": "changed"})) == 1
    assert len(json.loads(oss.buckets[BUCKET][INDEX].content)["trees"]) == 1


def test_a_list_that_cannot_be_read_is_left_alone(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    upload(client, write(tmp_path, FILES))
    before = oss.buckets[BUCKET][INDEX].content
    oss.fail("status", times=10_000, status=403, code="AccessDenied", fits=lambda seen: seen.key == INDEX)
    assert upload(client, write(tmp_path, {"train.py": "changed"})) == len(FILES)
    assert oss.buckets[BUCKET][INDEX].content == before


@pytest.mark.parametrize("change", ["gone", "forged", "not JSON", "no etags", "evil etags", "of before"])
def test_a_manifest_that_is_not_right_is_not_believed(
    client: OssClient, oss: FakeOss, tmp_path: Path, change: str
) -> None:
    earlier = write(tmp_path / "src", FILES)
    upload(client, earlier)
    uri = manifest_uri(folder_of(earlier))
    manifest = json.loads(oss.buckets[BUCKET][uri.key].content)
    for file in manifest["files"]:
        if change == "forged":  # says that another file holds what is wanted
            file["path"] = "train.py"
        elif change == "no etags":
            del file["etag"]
        elif change == "evil etags":
            file["etag"] = "x\r\nx-oss-object-acl: public-read"
        elif change == "of before":
            file["etag"] = None
    content = b"<html>" if change == "not JSON" else json.dumps(manifest).encode()
    client.put_bytes(uri, content)
    if change == "gone":
        client.delete(uri)
    changed = write(tmp_path / "src", {"train.py": "changed"})
    assert upload(client, changed) == len(FILES)
    must_be_whole(client, changed, tmp_path / "down")


def test_the_next_best_tree_serves_when_the_best_is_gone(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    half = dict(list(FILES.items())[:10])
    upload(client, write(tmp_path / "half", half | {f"own{number}": f"own {number}" for number in range(11)}))
    best = write(tmp_path / "src", FILES)
    upload(client, best)
    client.delete(manifest_uri(folder_of(best)))
    oss.seen.clear()
    assert upload(client, write(tmp_path / "src", {"train.py": "changed"})) < len(FILES) - 5


def test_a_line_of_changes_takes_one_place_in_the_list(client: OssClient, oss: FakeOss, tmp_path: Path) -> None:
    upload(client, write(tmp_path / "other", {"a": "other", "b": "another"}))
    for step in range(5):
        newest = write(tmp_path / "src", FILES | {"train.py": f"step {step}"})
        upload(client, newest)
    names = [tree["name"] for tree in json.loads(oss.buckets[BUCKET][INDEX].content)["trees"]]
    assert len(names) == 2
    assert names[0] == newest.digest[:32]


def test_a_folder_that_is_not_named_by_its_content_has_no_list(
    client: OssClient, oss: FakeOss, tmp_path: Path
) -> None:
    upload_tree(client, write(tmp_path, FILES), OssUri(BUCKET, "data/set1/"))
    assert not [key for key in oss.buckets[BUCKET] if "recent" in key]


@pytest.mark.parametrize("texts", [("one", "two"), ("same", "same")])
def test_two_uploads_at_once_are_both_right(
    client: OssClient, oss: FakeOss, tmp_path: Path, texts: tuple[str, str]
) -> None:
    upload(client, write(tmp_path / "before", FILES))
    both = [write(tmp_path / f"{n}", FILES | {"train.py": text}) for n, text in enumerate(texts)]
    # Neither may be told that the other has finished: each step is asked for by both before it is answered.
    together = threading.Barrier(2)

    def wait_for_the_other(seen: Seen) -> None:
        if seen.method == "GET" and (not seen.key or "recent" in seen.key):
            together.wait(PATIENCE_S)

    oss.before = wait_for_the_other
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(partial(upload, client), both)) == [1, 1]
    oss.before = lambda seen: None
    for number, tree in enumerate(both):
        must_be_whole(client, tree, tmp_path / f"down{number}")
    assert (folder_of(both[0]) == folder_of(both[1])) == (texts[0] == texts[1])


names = st.lists(st.sampled_from(["a", "b", "c.py", "é x"]), min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(names, st.tuples(st.sampled_from(["", "1", "2", "long" * 50]), st.booleans()), max_size=8)


def make(root: Path, files: dict[str, tuple[str, bool]]) -> FileTree:
    for name, (text, executable) in files.items():
        path = root / name
        if any(parent.is_file() for parent in path.parents) or path.is_dir():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if executable else 0o644)
    return FileTree.scan(root)


@pytest.mark.slow
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=st.lists(trees, min_size=1, max_size=4), lost=st.sets(st.integers(0, 30)))
def test_any_history_ends_in_whole_trees(
    client: OssClient, oss: FakeOss, history: list[dict[str, tuple[str, bool]]], lost: set[int]
) -> None:
    oss.buckets[BUCKET].clear()
    for step, files in enumerate(history):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "src"
            write(root, {"step": f"step {step}"})  # so that no tree comes twice
            tree = make(root, files)
            assert 1 <= upload(client, tree) <= len(tree.entries)
            must_be_whole(client, tree, Path(folder) / "down")
        objects = oss.buckets[BUCKET]
        for number, key in enumerate(sorted(objects)):
            if number in lost and not key.endswith(".json"):
                del objects[key]
