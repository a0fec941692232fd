"""`pai-sdk cp`, `ls`, `sync` and `rm`, on local folders and on OSS."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk.cli import root
from tests.support.fake_oss import FakeOss
from tests.unit.data.storage.conftest import BUCKET, client, oss, retry

__all__ = ["client", "oss", "retry"]

HERE = f"oss://{BUCKET}/team"


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: OssClient, clean_home: Path) -> Path:
    """The current folder, with a tree of files; `oss://` is the fake."""
    monkeypatch.chdir(tmp_path)
    session = SimpleNamespace(files=lambda: client)
    monkeypatch.setattr("pai_sdk._data.storage.store.session_or_default", lambda given: session)
    for name in ("data/a.txt", "data/sub/b.txt", "data/sub/deep/c.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    return tmp_path


@pytest.fixture
def pai(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the command; returns its exit code and what it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["pai-sdk", *arguments])
        code: object = 0
        try:
            root.run()
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return int(code or 0), said.out + said.err  # type: ignore[call-overload]

    return run


def tree(folder: str) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in Path(folder).rglob("*") if path.is_file()}


def keys(oss: FakeOss) -> list[str]:
    return sorted(oss.buckets[BUCKET])


def test_a_file_goes_up_and_comes_down(pai, oss: FakeOss) -> None:
    assert pai("cp", "data/a.txt", f"{HERE}/x.txt")[0] == 0
    assert pai("cp", "data/a.txt", f"{HERE}/into/")[0] == 0
    assert keys(oss) == ["team/into/a.txt", "team/x.txt"]
    code, said = pai("cp", f"{HERE}/x.txt", "new/y.txt")
    assert (code, "copied" in said, Path("new/y.txt").read_text()) == (0, True, "data/a.txt")
    assert pai("cp", f"{HERE}/x.txt", "data/sub")[0] == 0
    assert Path("data/sub/x.txt").read_text() == "data/a.txt"
    assert pai("cp", f"{HERE}/x.txt", f"{HERE}/z.txt")[0] == 0
    assert oss.buckets[BUCKET]["team/z.txt"].content == b"data/a.txt"


def test_a_program_stays_one(pai, place: Path) -> None:
    Path("data/a.txt").chmod(0o755)
    pai("cp", "data/a.txt", f"{HERE}/a")
    pai("cp", f"{HERE}/a", "back")
    assert os.access("back", os.X_OK)


def test_a_folder_needs_recursive(pai, oss: FakeOss) -> None:
    code, said = pai("cp", "data", HERE)
    assert code == 1
    assert "3 files" in said
    assert "--recursive" in said
    assert keys(oss) == []
    assert pai("cp", "-r", "data", HERE)[0] == 0
    assert keys(oss) == ["team/a.txt", "team/sub/b.txt", "team/sub/deep/c.txt"]
    assert pai("cp", "--recursive", f"{HERE}/", "back")[0] == 0
    assert tree("back") == tree("data")


def test_a_dry_run_changes_nothing(pai, oss: FakeOss) -> None:
    code, said = pai("cp", "-r", "--dry-run", "data", HERE)
    assert code == 0
    assert "would move sub/b.txt" in said
    assert "would have copied 3 files" in said
    assert "would copy data/a.txt" in pai("cp", "--dry-run", "data/a.txt", f"{HERE}/x")[1]
    assert "would have moved 3 files" in pai("sync", "--dry-run", "data", HERE)[1]
    assert keys(oss) == []
    pai("sync", "data", HERE)
    assert "would delete 3 files" in pai("rm", "-r", "--dry-run", HERE)[1]
    assert len(keys(oss)) == 3


def test_a_sync_moves_what_is_new_or_changed(pai, oss: FakeOss) -> None:
    assert "moved 3 files" in pai("sync", "data", HERE)[1]
    assert "moved 0 files (0 B) to oss://test-bucket/team, 3 unchanged" in pai("sync", "data", HERE)[1]
    Path("data/a.txt").write_text("other")
    del oss.buckets[BUCKET]["team/sub/b.txt"]
    assert "moved 2 files" in pai("sync", "data/", f"{HERE}/")[1]
    Path("data/a.txt").unlink()
    assert len(keys(oss)) == 3
    assert "1 deleted" in pai("sync", "--delete", "data", HERE)[1]
    assert keys(oss) == ["team/sub/b.txt", "team/sub/deep/c.txt"]
    assert pai("sync", HERE, "back")[0] == 0
    assert tree("back") == tree("data")


def test_a_sync_is_of_folders(pai) -> None:
    code, said = pai("sync", "data/a.txt", HERE)
    assert code == 1
    assert "pai-sdk cp" in said


def test_a_list_has_files_and_folders(pai) -> None:
    pai("sync", "data", HERE)
    code, said = pai("ls", HERE)
    assert code == 0
    assert [row.split()[-1] for row in said.splitlines()] == ["a.txt", "sub/"]
    assert "10 B" in said
    assert "2024-01-01 00:00:00" in said
    recursive = pai("ls", "-r", f"{HERE}/")[1]
    assert [row.split()[-1] for row in recursive.splitlines()] == ["a.txt", "sub/b.txt", "sub/deep/c.txt"]
    assert [row.split()[-1] for row in pai("ls", f"oss://{BUCKET}")[1].splitlines()] == ["team/"]
    assert [row.split()[-1] for row in pai("ls", f"{HERE}/a.txt")[1].splitlines()] == ["a.txt"]
    assert [row.split()[-1] for row in pai("ls")[1].splitlines()] == ["data/"]
    assert [row.split()[-1] for row in pai("ls", "data/../data/sub")[1].splitlines()] == ["b.txt", "deep/"]


def test_a_list_for_scripts(pai) -> None:
    pai("sync", "data", HERE)
    rows = [json.loads(row) for row in pai("ls", "--json", HERE)[1].splitlines()]
    assert [row["path"] for row in rows] == ["a.txt", "sub/"]
    assert rows[0]["size_bytes"] == len("data/a.txt")
    assert set(rows[0]) == {"path", "size_bytes", "modified_ns", "etag"}


def test_a_name_is_one_line(pai) -> None:
    Path("data/new\nline\x1b[31m").write_text("")
    lines = pai("ls", "data")[1].splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("new\\nline\\x1b[31m")


def test_deletions(pai, oss: FakeOss) -> None:
    pai("sync", "data", HERE)
    assert "deleted 1 file at" in pai("rm", f"{HERE}/a.txt")[1]
    assert keys(oss) == ["team/sub/b.txt", "team/sub/deep/c.txt"]
    code, said = pai("rm", f"{HERE}/sub")
    assert code == 1
    assert "2 files" in said
    assert "--recursive" in said
    assert len(keys(oss)) == 2
    oss.buckets[BUCKET]["team/sub-x"] = oss.buckets[BUCKET]["team/sub/b.txt"]
    assert "deleted 2 files" in pai("rm", "-r", f"{HERE}/sub")[1]
    assert keys(oss) == ["team/sub-x"]


def test_a_local_folder_is_deleted_without_what_links_lead_to(pai) -> None:
    Path("kept").mkdir()
    Path("kept/x").write_text("1")
    Path("data/link").symlink_to(Path("kept").absolute())
    Path("data/empty").mkdir()
    Path("alias").symlink_to("kept")
    assert pai("rm", "-r", "data")[0] == 0
    assert not Path("data").exists()
    assert pai("rm", "alias")[0] == 0
    assert not Path("alias").is_symlink()
    assert Path("kept/x").read_text() == "1"


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "missing"),
        ("ls", f"oss://{BUCKET}/missing"),
        ("cp", f"oss://{BUCKET}/missing", "x"),
        ("cp", "missing", "x"),
        ("sync", "missing", "x"),
        ("rm", "missing"),
        ("rm", "-r", f"oss://{BUCKET}/missing/"),
    ],
)
def test_what_is_not_there_has_its_exit_code(pai, arguments: tuple[str, ...]) -> None:
    code, said = pai(*arguments)
    assert code == 102
    assert "no such file or folder" in said
    assert ("pai-sdk delete missing" in said) == (arguments == ("rm", "missing"))


def test_other_errors_are_one_line(pai) -> None:
    code, said = pai("ls", "oss://no-such-bucket/x")
    assert code == 1
    assert said.startswith("error: ")
    code, said = pai("ls", "carrier-pigeon://x")
    assert code == 1
    assert "carrier-pigeon" in said
    assert pai("ls", "")[0] == 1
    assert pai("cp", "data")[0] == 2


@pytest.mark.parametrize("command", ["cp", "ls", "sync", "rm"])
def test_help(pai, command: str) -> None:
    code, said = pai(command, "--help")
    assert code == 0
    assert "oss://" in said
