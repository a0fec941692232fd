from __future__ import annotations

import errno
import hashlib
import os
import socket
from io import FileIO
from pathlib import Path

import pytest

from pai_sdk._data.storage import content_hash
from pai_sdk._data.storage.content_hash import has_blake3
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.walk import FolderWalk, list_folder
from pai_sdk.errors import InvalidInputError

HOSTILE = ["a b.txt", "quote'\".py", "日本.py", "line\nbreak", "-rf", "$(touch x)", "%2e%2e", "#?&"]


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def tagged(content: bytes) -> str:
    if len(content) > 65_536 and has_blake3():
        from blake3 import blake3

        return f"blake3:{blake3(content).hexdigest()}"
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def problems_of(root: Path) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        FileTree.scan(root)
    return {problem.where: str(problem) for problem in caught.value.problems}


def test_files_are_sorted_and_complete(tmp_path: Path) -> None:
    write(tmp_path, {name: name for name in HOSTILE} | {"sub/dir/z": "zz", "sub/a": ""})
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    tree = FileTree.scan(tmp_path)
    assert [entry.path for entry in tree.entries] == sorted([*HOSTILE, "sub/dir/z", "sub/a"])
    assert tree.size_bytes == sum(len(name.encode()) for name in HOSTILE) + 2
    assert tree.root == tmp_path


def test_large_files_have_their_hashes_and_places_among_small_ones(tmp_path: Path) -> None:
    contents = {f"{number}": os.urandom(2 << 20 if number % 2 else 10) for number in range(8)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = [(entry.path, entry.size_bytes, entry.digest) for entry in FileTree.scan(tmp_path).entries]
    assert found == [(name, len(of), tagged(of)) for name, of in contents.items()]


def test_all_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    for name in ("large", "other-large", "small", "whole"):
        (tmp_path / name).write_bytes(bytes(2 << 20 if "large" in name else 10))
    listing = list_folder(tmp_path)
    for name in ("large", "other-large", "small"):
        (tmp_path / name).unlink()
    with pytest.raises(InvalidInputError) as caught:
        FileTree.of(listing)
    assert [problem.where for problem in caught.value.problems] == ["large", "other-large", "small"]


def test_digest_follows_path_mode_and_content_and_nothing_else(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"a": "1", "b/c": "2"})
    two = write(tmp_path / "two", {"b/c": "2", "a": "1"})
    os.utime(two / "a", (1, 1))
    digest = FileTree.scan(one).digest
    assert FileTree.scan(two).digest == digest
    (two / "a").chmod(0o755)
    assert FileTree.scan(two).digest != digest
    (two / "a").chmod(0o644)
    (two / "a").write_text("2")
    assert FileTree.scan(two).digest != digest
    (two / "a").write_text("1")
    (two / "b").rename(two / "d")
    assert FileTree.scan(two).digest != digest


def test_a_refused_folder_is_never_entered(tmp_path: Path) -> None:
    write(tmp_path, {"keep/a": "", "drop/b": "", "drop/deep/c": ""})
    asked: list[tuple[str, bool]] = []

    def accept(path: str, is_dir: bool) -> bool:
        asked.append((path, is_dir))
        return path != "drop"

    assert [entry.path for entry in FileTree.scan(tmp_path, accept=accept).entries] == ["keep/a"]
    assert asked == [("drop", True), ("keep", True), ("keep/a", False)]


def test_a_single_file_is_a_tree_of_one(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "print()", "other.py": ""})
    tree = FileTree.scan(tmp_path / "train.py")
    assert (tree.root, [entry.path for entry in tree.entries]) == (tmp_path, ["train.py"])


def test_nothing_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such file or folder"):
        FileTree.scan(tmp_path / "missing")


def test_what_is_no_folder_of_files_is_told_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for name, says in {
        "dangling": "is a broken link",
        "loop": "is a broken link",
        "pipe": "is a socket, pipe or device, not a file",
        "n" * 256: "cannot be read: File name too long",
        "nul\0": "no such file or folder",
    }.items():
        with pytest.raises(InvalidInputError, match=says):
            FileTree.scan(tmp_path / name)


def test_links_within_are_followed(tmp_path: Path) -> None:
    write(tmp_path, {"real/a.py": "a"})
    (tmp_path / "file.py").symlink_to("real/a.py")
    (tmp_path / "alias").symlink_to("real")
    paths = [entry.path for entry in FileTree.scan(tmp_path).entries]
    assert paths == ["alias/a.py", "file.py", "real/a.py"]


def test_all_that_cannot_be_taken_is_told_at_once(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {"a.py": "a", "sub/b.py": "b"})
    write(tmp_path, {"root-secret/x": "outside"})
    (root / "etc").symlink_to("/etc/hostname")
    (root / "beside").symlink_to("../root-secret")
    (root / "gone").symlink_to("nowhere")
    (root / "sub" / "up").symlink_to("..")
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    os.mkfifo(root / "pipe")
    (Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9"))).write_text("")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "sock"))
        told = problems_of(root)
    assert set(told) == {"etc", "beside", "gone", "sub/up", "one", "two", "pipe", "caf\\xe9", "sock"}
    assert "outside of the folder" in told["etc"]
    assert "outside of the folder" in told["beside"]
    assert "broken link" in told["gone"]
    assert "a folder that it lies in" in told["sub/up"]
    assert "not a file" in told["pipe"]
    assert "rename it" in told["caf\\xe9"]


def test_very_deep_folders(tmp_path: Path) -> None:
    deep = Path(*["d"] * 700)
    (tmp_path / deep).mkdir(parents=True)
    (tmp_path / deep / "f").touch()
    assert [entry.path for entry in FileTree.scan(tmp_path).entries] == [f"{deep}/f"]


def test_what_is_refused_is_no_problem(tmp_path: Path) -> None:
    write(tmp_path, {"a": ""})
    (tmp_path / "out").symlink_to("/etc")
    tree = FileTree.scan(tmp_path, accept=lambda path, is_dir: path != "out")
    assert [entry.path for entry in tree.entries] == ["a"]


def test_what_cannot_be_read_is_told_with_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "root", {"a.py": "a", "locked": "x", "sub/locked": "y"})
    os.mkfifo(root / "pipe")
    deny(monkeypatch, "locked")
    told = problems_of(root)
    assert set(told) == {"locked", "pipe", "sub/locked"}
    assert "cannot be read: Permission denied" in told["locked"]
    (root / "pipe").unlink()
    assert set(problems_of(root)) == {"locked", "sub/locked"}


def deny(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make files of a name unreadable, also for root, who runs the tests in many a container."""
    as_ever = Path.open

    def refuse(path: Path, *args: object, **options: object) -> object:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return as_ever(path, *args, **options)  # type: ignore[call-overload]

    def refuse_hashing(path: str) -> FileIO:
        if Path(path).name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return FileIO(path)

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(content_hash, "FileIO", refuse_hashing)


def test_a_walk_is_in_the_order_of_the_paths(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a.txt", "a/b"):
        (tmp_path / name).touch()
    assert [file.path for file in FolderWalk(tmp_path).entries()] == ["a.txt", "a/b"]


def test_a_tree_without_accepted_files_is_empty(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    tree = FileTree.scan(tmp_path, accept=lambda path, is_dir: path.endswith(".no-such-name"))
    assert tree.summary() == "0 files, 0 B"
