"""Which event files there are, and which have changed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pai_sdk._data.run.watch import scan as run_scan
from pai_sdk._data.run.watch.scan import LocalRunFolders, RemoteRunFolders, RunFolders, run_folder_of, run_folders
from pai_sdk._data.storage.stores.local import LocalStore
from tests.unit.data.run.store.switched_store import SwitchedStore

NAME = "events.out.tfevents.1790000000.host.1.0"


def put(root: Path, folder: str, content: str = "x", name: str = NAME) -> Path:
    file = root / folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


@pytest.fixture(params=["local", "remote"])
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolders:
    if request.param == "local":
        return LocalRunFolders(LocalStore(tmp_path / "runs"))
    return RemoteRunFolders(SwitchedStore(tmp_path / "runs"))


def test_runs_are_found_and_changes_are_seen(folders: RunFolders, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    assert folders.scan(everything=True).changed == {}  # the folder need not exist yet
    put(root, "a")
    put(root, "group/b/tensorboard")
    put(root, "group/b/tensorboard/rank-1")
    put(root, "")
    put(root, "c", name="model.pt")
    found = folders.scan(everything=True)
    assert {run: [file.path for file in files] for run, files in found.changed.items()} == {
        ".": [NAME],
        "a": [f"a/{NAME}"],
        "group/b": [f"group/b/tensorboard/{NAME}", f"group/b/tensorboard/rank-1/{NAME}"],
    }
    assert folders.scan(everything=True).changed == {}
    put(root, "a", "longer")
    second = put(root, "a", name=NAME + ".v2")
    (changed,) = folders.scan(everything=True).changed.items()
    assert (changed[0], [file.size_bytes for file in changed[1]]) == ("a", [6, 1])
    second.unlink()
    assert [len(files) for files in folders.scan(everything=True).changed.values()] == [1]
    shutil.rmtree(root / "group")
    assert folders.scan(everything=True).removed == {"group/b"}
    put(root, "group/b/tensorboard")
    assert list(folders.scan(everything=True).changed) == ["group/b"]
    shutil.rmtree(root)
    assert folders.scan(everything=True).removed == {".", "a", "group/b"}


@pytest.mark.parametrize(
    ("path", "run"),
    [
        (NAME, "."),
        (f"tensorboard/{NAME}", "."),
        (f"a/{NAME}", "a"),
        (f"a/tensorboard/{NAME}", "a"),
        (f"a/tensorboard/train/{NAME}", "a/tensorboard/train"),
        (f"a/rank-3/{NAME}", "a"),
        (f"rank-x/{NAME}", "rank-x"),
    ],
)
def test_the_folder_of_a_run(path: str, run: str) -> None:
    assert run_folder_of(path) == run


def test_a_file_that_is_replaced_has_changed(folders: RunFolders, tmp_path: Path) -> None:
    """Also with the same length and the same time, as a copy that keeps times."""
    root = tmp_path / "runs"
    file = put(root, "a", "old")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    folders.scan(everything=True)
    other = put(root, "elsewhere", "new", name="draft")
    os.utime(other, (1_700_000_000, 1_700_000_000))
    other.replace(file)
    assert list(folders.scan(everything=True).changed) == ["a"]


def test_links_and_hidden_folders_are_left_out(tmp_path: Path) -> None:
    """MGR-18: symbolic links are ignored."""
    root = tmp_path / "runs"
    outside = put(tmp_path, "outside")
    put(root, ".cache/a")
    put(root, "a")
    (root / "loop").symlink_to(root)
    (root / "other").symlink_to(tmp_path / "outside")
    (root / "b").mkdir()
    (root / "b" / NAME).symlink_to(outside)
    found = run_folders(LocalStore(root)).scan()
    assert (list(found.changed), found.problems) == (["a"], ())


def test_code_and_inputs_of_a_job_have_no_runs(tmp_path: Path) -> None:
    put(tmp_path, "try/output/tensorboard")
    put(tmp_path, "try/input/data/former")
    put(tmp_path, "other/input")  # not beside code: a folder with this name
    (tmp_path / "try" / "input" / "data" / "train").symlink_to(tmp_path)
    (tmp_path / "try" / "usercode").symlink_to(tmp_path)
    scan = run_folders(LocalStore(tmp_path)).scan()
    assert (sorted(scan.changed), scan.links) == (["other/input", "try/output"], ())


def test_links_to_runs_are_named(tmp_path: Path) -> None:
    """A folder of links, to compare some runs, is an empty folder otherwise."""
    root = tmp_path / "some"
    outside = put(tmp_path, "outside")
    for name, target in (("other", outside.parent), ("loop", root), ("self", root / "self"), ("file", outside)):
        root.mkdir(exist_ok=True)
        (root / name).symlink_to(target)
    (root / "b").mkdir()
    (root / "b" / NAME).symlink_to(outside)
    folders = run_folders(LocalStore(root))
    for _ in range(2):
        assert {Path(link).relative_to(root).as_posix() for link in folders.scan().links} == {
            "other",
            "loop",
            f"b/{NAME}",
        }
    (root / "other").unlink()
    assert str(root / "other") not in folders.scan(everything=True).links
    (tmp_path / "link").symlink_to(tmp_path)
    assert "outside" in run_folders(LocalStore(tmp_path / "link")).scan().changed


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems take no such names")
def test_names_that_are_not_utf8_are_problems(tmp_path: Path) -> None:
    put(tmp_path, "a")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")  # noqa: PTH102 - a Path cannot have this name
    found = LocalRunFolders(LocalStore(tmp_path)).scan()
    assert list(found.changed) == ["a"]
    assert "its name is not UTF-8" in found.problems[0]


def test_many_quiet_folders_are_looked_at_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MGR-B11: the original listed all of them three times every three seconds."""
    for number in range(50):
        file = put(tmp_path, f"run-{number:02}")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        os.utime(file.parent, (1_700_000_000, 1_700_000_000))
    folders = LocalRunFolders(LocalStore(tmp_path), max_quiet_folders=10)
    assert len(folders.scan().changed) == 50
    looked = []
    stat = os.stat
    monkeypatch.setattr(run_scan.os, "stat", lambda path, **how: looked.append(str(path)) or stat(path, **how))
    folders.scan()
    assert len(looked) < 30  # 10 folders with a file each, and the prefix
    # What grows is seen within some scans, and from then on at once.
    put(tmp_path, "run-33", "more")
    scans = 0
    while "run-33" not in folders.scan().changed:
        scans += 1
        assert scans <= 6
    for size in range(5, 9):
        put(tmp_path, "run-33", "x" * size)
        assert list(folders.scan().changed) == ["run-33"]
    # So is a new run.
    put(tmp_path, "new")
    assert list(folders.scan().changed) == ["new"]


def test_a_remote_prefix_is_listed_once_a_scan_and_not_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MGR-B11: one listing a scan; a listing that takes a second is made every six seconds at most."""
    now = [100.0]
    monkeypatch.setattr(run_scan, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    store = SwitchedStore(tmp_path)
    folders = RemoteRunFolders(store)
    put(tmp_path, "a")
    folders.scan()
    folders.scan()
    assert store.calls == {"list": 2}
    list_ = store.list

    def slow_list(*args: object, **kwargs: object) -> object:
        now[0] += 1
        return list_(*args, **kwargs)

    monkeypatch.setattr(store, "list", slow_list)
    for _ in range(10):
        folders.scan()
        now[0] += 1
    assert store.calls["list"] == 4
    folders.scan(everything=True)  # somebody waits for it
    assert store.calls["list"] == 5


def test_what_a_failed_listing_has_seen_is_in_the_next_one(tmp_path: Path) -> None:
    store = SwitchedStore(tmp_path)
    folders = RemoteRunFolders(store)
    put(tmp_path, "a")
    store.list_error = OSError("no network")
    with pytest.raises(OSError, match="no network"):
        folders.scan()
    store.list_error = None
    assert list(folders.scan().changed) == ["a"]


def test_a_scan_can_be_ended(tmp_path: Path) -> None:
    for number in range(10):
        put(tmp_path, f"a/{number}")
    answers = iter([False, False, False, True])
    folders = LocalRunFolders(LocalStore(tmp_path), lambda: next(answers, False))
    assert len(folders.scan().changed) < 10
    seen = set(folders.scan().changed)
    assert len(seen) >= 9


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_a_problem(tmp_path: Path) -> None:
    put(tmp_path, "a")
    (put(tmp_path, "b").parent).chmod(0)
    found = LocalRunFolders(LocalStore(tmp_path)).scan()
    assert list(found.changed) == ["a"]
    assert "cannot be read" in found.problems[0]
