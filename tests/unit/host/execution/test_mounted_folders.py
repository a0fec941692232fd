"""What is sent of the folders that a job has mounted for reading and writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.job_folder import JobFolder
from pai_sdk._host.execution.mounted_folders import make_files_executable, record_mounted
from pai_sdk._host.execution.output_uploader import OutputUploader


class Mounted:
    """A mount, and the store that it is from."""

    def __init__(self, folder: Path) -> None:
        self.sandbox = Sandbox(folder / "job")
        self.local, self.stored = self.sandbox.mount_dir(0), folder / "stored"
        for each in (self.local, self.stored):
            each.mkdir(parents=True)
            (each / "kept").write_text("kept")
            (each / "old").write_text("old")
        self.sandbox.state_dir.mkdir()
        record_mounted(self.sandbox, 0, JobFolder(self.sandbox).mount(0))

    def upload(self, *, live_only: bool = False) -> str:
        """Uploads as a new process does."""
        uploader = OutputUploader(JobFolder(self.sandbox), {}, mounts={0: lambda: LocalStore(self.stored)})
        assert uploader.has_live_channels
        return uploader.upload(live_only=live_only)

    def names(self) -> dict[str, str]:
        """What is in the store."""
        return {path.name: path.read_text() for path in self.stored.rglob("*") if path.is_file()}


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


def test_changes_and_deletions_are_sent_while_the_job_runs(mounted: Mounted) -> None:
    (mounted.local / "old").unlink()
    (mounted.local / "sub").mkdir()
    (mounted.local / "sub" / "new").write_text("new")
    assert mounted.upload(live_only=True) == ""
    assert mounted.names() == {"kept": "kept", "new": "new"}
    (mounted.local / "sub" / "new").write_text("newer")
    (mounted.local / "kept").unlink()
    assert mounted.upload() == ""
    assert mounted.names() == {"new": "newer"}


def test_files_of_other_jobs_stay_as_they_are(mounted: Mounted) -> None:
    (mounted.stored / "theirs").write_text("theirs")
    (mounted.stored / "kept").write_text("changed by another job")
    (mounted.local / "new").write_text("new")
    assert mounted.upload() == ""
    expected = {"kept": "changed by another job", "old": "old", "theirs": "theirs", "new": "new"}
    assert mounted.names() == expected


def test_a_store_is_not_opened_for_nothing(mounted: Mounted) -> None:
    def open_store() -> LocalStore:
        raise AssertionError

    assert OutputUploader(JobFolder(mounted.sandbox), {}, mounts={0: open_store}).upload(live_only=False) == ""


def test_nothing_is_deleted_while_a_file_could_not_be_sent(mounted: Mounted) -> None:
    (mounted.local / "old").unlink()
    (mounted.local / "kept").unlink()
    (mounted.local / "kept").symlink_to("/etc/passwd")
    assert "kept" in mounted.upload()
    assert mounted.names() == {"kept": "kept", "old": "old"}
    (mounted.local / "kept").unlink()
    assert mounted.upload() == ""
    assert mounted.names() == {}


def test_staged_files_can_be_executed(tmp_path: Path) -> None:
    """Scripts call `./run.sh` in a mounted bucket, where all files are executable."""
    (tmp_path / "sub").mkdir()
    script = tmp_path / "sub" / "run.sh"
    script.write_text("echo ran")
    script.chmod(0o644)
    (tmp_path / "dangling").symlink_to("nothing")
    make_files_executable(tmp_path)
    assert script.stat().st_mode & 0o777 == 0o755
    make_files_executable(tmp_path / "none")
