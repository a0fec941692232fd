"""Backups of a running service, and services made of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oss2.models import PartInfo

from pai_sdk._core.files import locked
from pai_sdk._service.embedded import find_running
from pai_sdk._service.services import backup as backups
from pai_sdk._service.services.backup import Contents
from pai_sdk.errors import InvalidInputError
from tests.service.postgres import url_for
from tests.service.services import job_body
from tests.support.messages import refused

LARGE = os.urandom(300_000)


def back_up(data: Path, target: Path) -> Contents:
    return backups.back_up(data, target, database_url=url_for(data))


def restore(source: Path, data: Path) -> Contents:
    return backups.restore(source, data, database_url=url_for(data))


def test_a_running_service_is_copied_with_its_keys_jobs_logs_and_objects(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    with start("process") as client:
        ended = client.create(job_body("echo one; echo two"))
        client.until(ended)
        running = client.create(job_body("exec sleep 1000"))
        client.until(running, "Running")
        client.bucket().put_object("large", LARGE)
        client.bucket().put_object("small", b"x")
        contents = back_up(tmp_path / "data", tmp_path / "backup")
        key = client.info.access_key_id
        client.call("PUT", f"/trainingjobs/{running}/stop")
        client.until(running)
    assert contents.files > 5
    assert contents.size_bytes > len(LARGE)
    restore(tmp_path / "backup", tmp_path / "other")
    with start("process", data_dir=tmp_path / "other") as client:
        assert client.info.access_key_id == key
        assert client.get(f"/trainingjobs/{ended}")["Status"] == "Succeed"
        assert client.log(ended) == ["one", "two"]
        assert client.until(running)["Status"] == "Failed", "its processes are on another machine"
        assert client.bucket().get_object("large").read() == LARGE
        assert client.bucket().get_object("small").read() == b"x"


def test_a_restored_folder_is_not_taken_for_the_service_it_was_copied_from(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    with start("process") as original:
        back_up(tmp_path / "data", tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "other")
        with locked(tmp_path / "other" / "lock", waits=False):  # a service begins there
            assert original.get("/trainingjobs")["TotalCount"] == 0
            assert find_running(tmp_path / "other") is None


def test_only_the_owner_can_read_a_backup(start: Callable[..., Any], tmp_path: Path) -> None:
    with start("process"):
        back_up(tmp_path / "data", tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    assert (tmp_path / "backup" / "backup.json").stat().st_mode & 0o077 == 0


def test_objects_that_come_and_go_meanwhile_are_whole_in_the_backup(
    tmp_path: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with start("process") as client:
        client.bucket().put_object("kept", LARGE)
        client.bucket().put_object("replaced", LARGE)
        copy, is_done = backups._copy_sqlite, threading.Event()

        def then_replace(source: Path, target: Path) -> None:
            copy(source, target)
            if source.name == "objects.db" and not is_done.is_set():
                is_done.set()
                client.bucket().put_object("replaced", LARGE[::-1])

        monkeypatch.setattr(backups, "_copy_sqlite", then_replace)
        back_up(tmp_path / "data", tmp_path / "backup")
    assert is_done.is_set()
    restore(tmp_path / "backup", tmp_path / "other")
    with start("process", data_dir=tmp_path / "other") as client:
        assert client.bucket().get_object("replaced").read() == LARGE[::-1]
        assert client.bucket().get_object("kept").read() == LARGE
    blobs = [path for path in (tmp_path / "backup" / "data" / "objects" / "blobs").rglob("*") if path.is_file()]
    assert len(blobs) == 2, "a content that nothing names any more is not kept"


def test_an_upload_in_parts_that_goes_on_meanwhile_is_whole_in_the_backup(
    tmp_path: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with start("process") as client:
        bucket = client.bucket()
        bucket.put_object("gone", LARGE)
        upload_id = bucket.init_multipart_upload("parts").upload_id
        parts = [PartInfo(n, bucket.upload_part("parts", upload_id, n, LARGE).etag) for n in (1, 3)]
        copy_index, copy_blob = backups._copy_sqlite, backups._copy_if_present

        def then_delete(source: Path, target: Path) -> None:
            copy_index(source, target)
            if source.name == "objects.db":
                bucket.delete_object("gone")  # so that the index is read once more

        def then_add_part(root: Path, data: Path, relative: str) -> dict[str, tuple[int, str]]:
            found = copy_blob(root, data, relative)
            if found.get(relative, (0, ""))[0] == 3 * len(LARGE) and len(parts) == 2:
                parts.insert(1, PartInfo(2, bucket.upload_part("parts", upload_id, 2, LARGE).etag))
            return found

        monkeypatch.setattr(backups, "_copy_sqlite", then_delete)
        monkeypatch.setattr(backups, "_copy_if_present", then_add_part)
        back_up(tmp_path / "data", tmp_path / "backup")
    assert len(parts) == 3
    restore(tmp_path / "backup", tmp_path / "other")
    with start("process", data_dir=tmp_path / "other") as client:
        client.bucket().complete_multipart_upload("parts", upload_id, parts)
        assert client.bucket().get_object("parts").read() == LARGE * 3


@pytest.mark.parametrize("damage", ["changed", "missing", "unfinished"])
def test_a_damaged_backup_is_not_restored(start: Callable[..., Any], tmp_path: Path, damage: str) -> None:
    with start("process") as client:
        client.bucket().put_object("large", LARGE)
        back_up(tmp_path / "data", tmp_path / "backup")
    blob = next(path for path in (tmp_path / "backup" / "data" / "objects" / "blobs").rglob("*") if path.is_file())
    if damage == "changed":
        blob.write_bytes(LARGE[:-1] + b"x")
    elif damage == "missing":
        blob.unlink()
    else:
        (tmp_path / "backup" / "backup.json").unlink()
    with pytest.raises(InvalidInputError, match="backup.json" if damage == "unfinished" else blob.name):
        restore(tmp_path / "backup", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_nothing_is_written_over(start: Callable[..., Any], tmp_path: Path) -> None:
    with start("process"):
        back_up(tmp_path / "data", tmp_path / "backup")
        for action in (
            lambda: back_up(tmp_path / "data", tmp_path / "backup"),
            lambda: restore(tmp_path / "backup", tmp_path / "data"),
        ):
            with refused(InvalidInputError):
                action()
    with refused(InvalidInputError):
        back_up(tmp_path / "none", tmp_path / "backup2")


def test_new_jobs_of_a_restored_service_come_after_the_old_ones(start: Callable[..., Any], tmp_path: Path) -> None:
    with start("process") as client:
        jobs = [client.create(job_body()) for _ in range(3)]
        client.until(jobs[-1])
        back_up(tmp_path / "data", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "other")
    with start("process", data_dir=tmp_path / "other") as client:
        jobs.append(client.create(job_body()))
        listed = client.get("/trainingjobs", Order="ASC")["TrainingJobs"]
        assert [job["TrainingJobId"] for job in listed] == jobs
