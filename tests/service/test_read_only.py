"""A folder that cannot be written any more: told in one sentence, and over with its cause."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oss2
import pytest
from sqlalchemy import Connection, Engine, event

from pai_sdk._service.oss.writer import Writer
from pai_sdk._service.settings import Pace
from tests.service import postgres
from tests.service.fakes import ScriptedExecutor
from tests.service.services import job_body
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(postgres.is_used(), reason="it is about the files of SQLite")


@dataclass
class Disk:
    """Says whether a folder can be written; other services of this process write on."""

    root: Path
    is_read_only: bool = False
    tried: int = 0

    def begin(self, connection: Connection) -> None:
        if str(self.root) in str(connection.engine.url):
            self.tried += self.is_read_only
            connection.exec_driver_sql(f"PRAGMA query_only = {int(self.is_read_only)}")

    def write(self, writer: Writer, tasks: Sequence[Any], database: sqlite3.Connection) -> None:
        if str(self.root) in str(writer._path):
            database.execute(f"PRAGMA query_only = {int(self.is_read_only)}")
        _write(writer, tasks, database)

    def open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if self.is_read_only and flags & os.O_CREAT and str(path).startswith(str(self.root)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return _open(path, flags, *rest, **more)


_open, _write = os.open, Writer._write


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk(tmp_path)
    monkeypatch.setattr(os, "open", made.open)
    monkeypatch.setattr(Writer, "_write", lambda *given: made.write(*given))
    event.listen(Engine, "begin", made.begin)
    yield made
    event.remove(Engine, "begin", made.begin)


def test_every_fault_is_one_sentence_and_ends_with_its_cause(
    start: Callable[..., Any], disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    executor = ScriptedExecutor()
    with start(executor, pace=Pace(retry_after_error_s=0.05)) as client:
        job_id, other = client.create(job_body()), client.create(job_body())
        for running in (job_id, other):
            client.until(running, "Running")
        client.bucket().put_object("kept", b"old")
        disk.is_read_only = True
        for running in (job_id, other):
            executor.succeed(client.info.data_dir / "jobs" / running)
        until(lambda: len([record for record in caplog.records if "tried again" in record.getMessage()]) > 1)
        tried = disk.tried
        until(lambda: disk.tried > tried + 20)  # both ends are tried again and again, and told once
        for method, path in (("POST", "/trainingjobs"), ("PUT", f"/trainingjobs/{job_id}/stop")):
            refused = client.call(method, path, body=job_body())
            assert (refused.status_code, refused.json()["Code"]) == (500, "InternalError")
            assert "cannot be written any more; make it writable" in refused.json()["Message"]
        with pytest.raises(oss2.exceptions.ServerError, match="cannot be written"):
            client.bucket().put_object("kept", b"new")
        assert client.bucket().get_object("kept").read() == b"old"
        assert client.get(f"/trainingjobs/{job_id}")["Status"] == "Running"
        for running in (job_id, other):
            assert len([record for record in caplog.records if f"job {running}" in record.getMessage()]) == 1
        disk.is_read_only = False
        for running in (job_id, other):
            assert client.until(running)["Status"] == "Succeed"
        client.create(job_body())
    told = [record for record in caplog.records if record.levelno > logging.WARNING and "pai_sdk" in record.name]
    assert all(record.exc_info is None for record in told), [record.getMessage() for record in told]
