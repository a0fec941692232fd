"""The identity of content: its algorithms, its names, and what stays as in earlier releases."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._data.storage import content_hash
from pai_sdk._data.storage.content_hash import SMALL_BYTES, algorithm_of, has_blake3
from pai_sdk._data.storage.crc64 import checksum_of
from pai_sdk._data.storage.tree import FileTree, with_sha256
from pai_sdk.errors import FileChangedError

SMALL, LARGE = b"s" * SMALL_BYTES, b"l" * (SMALL_BYTES + 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in {"empty": b"", "large": LARGE, "small": SMALL}.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def without_blake3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "blake3", None)
    has_blake3.cache_clear()
    yield
    monkeypatch.undo()
    has_blake3.cache_clear()


def as_of_earlier_releases(root: Path) -> str:
    """The digest of a tree, by the rule of the releases before BLAKE3."""
    content = hashlib.sha256()
    for path in sorted(path.name for path in root.iterdir()):
        digest = hashlib.sha256((root / path).read_bytes()).hexdigest()
        content.update(f"{path}\0-{digest}\n".encode())
    return content.hexdigest()


def test_larger_files_have_a_blake3_and_a_checksum(folder: Path) -> None:
    pytest.importorskip("blake3")
    entries = FileTree.scan(folder).entries
    assert [algorithm_of(entry.digest) for entry in entries] == ["sha256", "blake3", "sha256"]
    assert [entry.crc64 for entry in entries] == [None, checksum_of(LARGE), None]


def test_a_tree_of_small_files_is_named_as_by_earlier_releases(folder: Path) -> None:
    (folder / "large").unlink()
    assert FileTree.scan(folder).digest == as_of_earlier_releases(folder)


def test_another_tree_has_the_earlier_name_too(folder: Path) -> None:
    tree = FileTree.scan(folder)
    assert with_sha256(tree).digest == as_of_earlier_releases(folder)
    assert (tree.digest == as_of_earlier_releases(folder)) is not has_blake3()
    assert with_sha256(with_sha256(tree)) == with_sha256(tree)


def test_the_earlier_name_is_not_that_of_another_content(folder: Path) -> None:
    pytest.importorskip("blake3")
    tree = FileTree.scan(folder)
    (folder / "large").write_bytes(LARGE.upper())
    with pytest.raises(FileChangedError):
        with_sha256(tree)


@pytest.mark.usefixtures("without_blake3")
def test_a_machine_without_blake3_names_all_by_sha256(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        trees = [FileTree.scan(folder) for _ in range(2)]
    assert {tree.digest for tree in trees} == {as_of_earlier_releases(folder)}
    assert [record.name for record in caplog.records] == [content_hash.__name__]
