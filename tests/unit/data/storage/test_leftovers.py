"""What a killed download leaves: never uploaded, removed by the next download; the user's files are left alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pai_sdk._client.code.package import package_code
from pai_sdk._data.storage import leftovers
from pai_sdk._data.storage.leftovers import is_unfinished, open_part, resumable_part
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.transfer import download, upload
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._data.storage.uri import OssUri
from tests.support.fake_oss import FakeOss, StoredObject
from tests.unit.data.storage.conftest import BUCKET

pytestmark = pytest.mark.interpreter

FOLDER = OssUri(BUCKET, "run/")
KILLED = """
import os, pathlib, sys
from pai_sdk._data.storage.objects import replacing
for folder in sys.argv[1:]:
    entered = replacing(pathlib.Path(folder, "config.json"))
    entered.__enter__().path.write_bytes(b"half")
    kept = [entered] if folder == sys.argv[1] else [*kept, entered]
os.kill(os.getpid(), 9)
"""
ALIKE = [
    ".model.part",
    ".0123456789abcdef.part",
    ".pai-sdk-notes.part",
    ".pai-sdk-0123456789abcdef.part.txt",
    "pai-sdk-0123456789abcdef.part",
]


@pytest.fixture
def folder(tmp_path: Path, oss: FakeOss) -> Path:
    """A folder, and its like in OSS."""
    (tmp_path / "run" / "deep").mkdir(parents=True)
    for name in ("a", "deep/b"):
        (tmp_path / "run" / name).write_bytes(b"1")
        oss.buckets[BUCKET][f"run/{name}"] = StoredObject(b"1")
    return tmp_path / "run"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_killed_download_is_cleaned_up_after(client: OssClient, folder: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), str(folder / "deep")]
    assert subprocess.run(command, check=False).returncode == -9
    left = names(folder) - {"a", "b"}
    assert len(left) == 2
    assert [entry.path for entry in FileTree.scan(folder).entries] == ["a", "deep/b"]
    assert [entry.path for entry in package_code(folder).entries] == ["a", "deep/b"]
    download(client, FOLDER, folder)
    assert names(folder) == {"a", "b"}


def test_one_file_fetched_cleans_its_folder(client: OssClient, folder: Path) -> None:
    _, file = open_part(folder)
    os.close(file)
    download(client, FOLDER.join("a"), folder / "a")
    assert names(folder) == {"a", "b"}


def test_what_is_being_made_is_neither_removed_nor_uploaded(client: OssClient, oss: FakeOss, folder: Path) -> None:
    part, file = open_part(folder)
    download(client, FOLDER, folder)
    assert part.exists()
    upload(client, folder, OssUri(BUCKET, "up/"))
    assert {key for key in oss.buckets[BUCKET] if key.startswith("up/")} == {"up/a", "up/deep/b"}
    os.close(file)
    download(client, FOLDER, folder)
    assert not part.exists()


def test_a_large_file_that_may_go_on_stays_and_is_not_uploaded(client: OssClient, folder: Path) -> None:
    part = resumable_part(folder / "model.pt")
    notes = part.with_name(f"{part.name}.done")
    part.write_bytes(b"half")
    notes.write_bytes(b"[]")
    download(client, FOLDER, folder)
    assert names(folder) == {"a", "b", part.name, notes.name}
    assert [entry.path for entry in FileTree.scan(folder).entries] == ["a", "deep/b"]


def test_files_that_only_look_alike_are_the_users(client: OssClient, oss: FakeOss, folder: Path) -> None:
    for name in ALIKE:
        (folder / name).write_bytes(b"mine")
    download(client, FOLDER, folder)
    assert names(folder) == {"a", "b", *ALIKE}
    upload(client, folder, OssUri(BUCKET, "up/"))
    assert {key.removeprefix("up/") for key in oss.buckets[BUCKET] if key.startswith("up/")} == {
        "a",
        "deep/b",
        *ALIKE,
    }


def test_what_another_machine_makes_in_a_shared_folder(client: OssClient, folder: Path) -> None:
    """Its locks may not be seen here, so only what has not been touched for a day is taken for left."""
    part, file = open_part(folder)
    os.close(file)
    part = part.rename(folder / re.sub("-[0-9a-f]{8}-", "-00000000-", part.name))
    download(client, FOLDER, folder)
    assert part.exists()
    os.utime(part, (time.time() - 25 * 3600,) * 2)
    download(client, FOLDER, folder)
    assert not part.exists()


def test_links_and_folders_of_such_a_name_are_not_followed(
    client: OssClient, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    part, file = open_part(folder)
    os.close(file)
    part.unlink()
    part.symlink_to(tmp_path / "mine")
    other, file = open_part(folder)
    os.close(file)
    other.unlink()
    other.mkdir()
    download(client, FOLDER, folder)
    assert part.is_symlink()
    assert other.is_dir()
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_one_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def swept(file: int, *, waits: bool) -> None:
        made.append(file)
        if len(made) == 1:
            (part,) = tmp_path.iterdir()
            part.unlink()

    monkeypatch.setattr(leftovers, "take_lock", swept)
    part, file = open_part(tmp_path)
    assert len(made) == 2
    assert is_unfinished(part.name)
    assert part.exists()
    os.close(file)


def test_only_our_own_temporary_names_are_unfinished_downloads() -> None:
    assert is_unfinished(".pai-sdk-00ff00ff00ff00ff.part")
    assert not is_unfinished(".model.part")
