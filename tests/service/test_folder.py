"""The data folder of a service, and its lock."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._service.settings import ServiceInfo
from pai_sdk._service.state.folder import DataFolder, is_locked, read_info
from pai_sdk.errors import ServiceStartError
from tests.support.messages import refused


def test_a_program_that_is_just_being_started_holds_no_folder(tmp_path: Path) -> None:
    """Until it is another program, a process that was forked has all that its parent had open, the lock too."""
    root = tmp_path / "data"
    with DataFolder(root) as folder:
        assert folder._lock is not None
        as_in_a_fork = os.dup(folder._lock)
    try:
        assert not is_locked(root)
        with DataFolder(root):
            assert is_locked(root)
    finally:
        os.close(as_in_a_fork)


@pytest.mark.parametrize("mode", [0o1777, 0o755, 0o2770])
def test_the_mode_of_a_folder_that_was_there_stays_as_it_is(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "data"
    root.mkdir()
    root.chmod(mode)
    with DataFolder(root) as folder:
        assert stat.S_IMODE(root.stat().st_mode) == mode
        for private in (folder.jobs_dir, folder.objects_dir, root / "lock"):
            assert stat.S_IMODE(private.stat().st_mode) & 0o077 == 0


def test_a_folder_that_is_made_is_closed_to_others(tmp_path: Path) -> None:
    with DataFolder(tmp_path / "new"):
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["thesis.tex", ".git", "jobs/of/mine", "lock and key"])
def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / "kept.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with (
        refused(ServiceStartError),
        DataFolder(tmp_path),
    ):
        pass
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("names", [[], ["start.lock", "service.log"], ["jobs", "lock"], ["lost+found"]])
def test_an_empty_folder_and_one_of_a_start_that_was_cut_off_are_taken(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).mkdir() if name in ("jobs", "lost+found") else (tmp_path / name).touch()
    with DataFolder(tmp_path):
        assert is_locked(tmp_path)


def test_a_services_own_folder_is_taken_with_what_lies_beside(start: Callable[..., Any], tmp_path: Path) -> None:
    with start():
        pass
    (tmp_path / "data" / "notes.txt").write_text("mine")
    with start() as client:
        assert client.get("/trainingjobs")["TotalCount"] == 0


def test_a_lock_that_leads_elsewhere_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("of another user")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lock").symlink_to(tmp_path / "elsewhere")
    with refused(ServiceStartError), DataFolder(tmp_path / "data"):
        pass


def test_what_a_newer_service_wrote_down_is_read(tmp_path: Path) -> None:
    known = ServiceInfo("http://h:1", "http://h:1", "local", "1", "b", "id", "secret", version="9.9")
    facts = {**json.loads(known.to_json()), "something_new": [1]}
    (tmp_path / "service.json").write_text(json.dumps(facts))
    found = read_info(tmp_path)
    assert found is not None
    assert (found.version, found.access_key_secret) == ("9.9", "secret")
