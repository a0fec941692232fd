"""The database: the mode of its files, older and newer ones, one service each, PostgreSQL by URL."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, create_engine, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from pai_sdk._core.extras import install_command
from pai_sdk._service.server import Service
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.settings import ServiceSettings
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.migrations import JOBS
from pai_sdk._service.state.schema import Schema
from pai_sdk._service.state.sql_engine import display_url, is_database_away, postgres_url
from pai_sdk.errors import ServiceStartError
from tests.service import postgres
from tests.service.fakes import ScriptedExecutor
from tests.service.postgres import url_for
from tests.service.services import job_body
from tests.support.waiting import PATIENCE_S

on_postgres = pytest.mark.skipif(not postgres.is_used(), reason="python -m tests.service.postgres runs it")
on_sqlite = pytest.mark.skipif(postgres.is_used(), reason="it is about the files of SQLite")


def test_other_users_cannot_read_the_database(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    path.touch(mode=0o644)  # as an earlier version left it
    database = Database.in_file(path)
    with database.write():
        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    database.close()
    assert modes == dict.fromkeys(("service.db", "service.db-shm", "service.db-wal"), "0o600")


# ---- versions ---------------------------------------------------------------------------------------------


ANNOTATIONS = ("job_annotations", "job_prices", "job_stars", "saved_views")


def as_the_first_build_left_it(path: Path) -> None:
    """Bring a database back to version 1 of its tables."""
    with sqlite3.connect(path) as connection:
        for index in ("jobs_by_owner", "jobs_by_turn", "jobs_by_workspace"):
            connection.execute(f"DROP INDEX {index}")
        for column in ("priority", "owner", "accessibility", "attempt", "not_before", "cause"):
            connection.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
        connection.execute("ALTER TABLE access_keys DROP COLUMN expires_at")
        connection.execute("ALTER TABLE audit_log DROP COLUMN expires_at")
        connection.execute("ALTER TABLE metrics DROP COLUMN step")
        connection.execute("ALTER TABLE metrics DROP COLUMN instance")
        for table in (
            "schema_versions",
            "algorithm_versions",
            "algorithms",
            "job_algorithms",
            "progress",
            *ANNOTATIONS,
        ):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.close()


@on_sqlite
def test_the_jobs_of_the_first_build_are_carried_over(start: Callable[..., Any], tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    with start(executor, slots=1) as client:
        running = client.create(job_body())
        client.until(running, "Running")
        low, high = client.create(job_body()), client.create(job_body(Priority=7))
    as_the_first_build_left_it(tmp_path / "data" / "service.db")
    for _ in range(2):  # again, it is up to date
        with start(executor, slots=1) as client:
            assert client.get("/trainingjobs")["TotalCount"] == 3
            assert client.call("PATCH", f"/runs/{low}/annotations", body={"note": "n", "star": True}).ok
            assert client.call("PUT", "/views/v", body={"fields": ""}).ok
    with sqlite3.connect(tmp_path / "data" / "service.db") as connection:
        indexes = {row[1] for row in connection.execute("PRAGMA index_list(jobs)")}
        assert {"jobs_by_owner", "jobs_by_turn", "jobs_by_workspace"} <= indexes
    connection.close()
    with start(executor, slots=1) as client:
        for job_id in (running, high, low):  # what was only in the request counts now
            client.until(job_id, "Running")
            executor.succeed(tmp_path / "data" / "jobs" / job_id)
        client.until(low)


@on_sqlite
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            "UPDATE schema_versions SET version = 99 WHERE name = 'jobs'",
            r"newer pai-sdk \(version 99 ",
        ),
        ("ALTER TABLE jobs DROP COLUMN failed_instance", r"\(missing columns: jobs\.failed_instance\)"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(
    start: Callable[..., Any], tmp_path: Path, damage: str, said: str
) -> None:
    with start(ScriptedExecutor()) as client:
        client.create(job_body())
    database = tmp_path / "data" / "service.db"
    with sqlite3.connect(database) as connection:
        connection.execute(damage)
    connection.close()
    before = database.read_bytes()
    command = [sys.executable, "-m", "pai_sdk._service", "--data", str(tmp_path / "data"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    with pytest.raises(ServiceStartError, match=said):
        raise ServiceStartError(line)
    assert database.read_bytes() == before


def test_migrations_run_in_order_once_and_wholly_or_not_at_all(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    first = Schema("things", MetaData())
    Table("things", first.metadata, Column("a", Integer, primary_key=True))
    third = Schema("things", MetaData(), [add("b"), add("c")])
    Table("things", third.metadata, *(Column(name, Integer, primary_key=name == "a") for name in "abc"))
    with engine.begin() as connection:
        first.prepare(connection)
    broken = Schema("things", third.metadata, [add("b"), fail])
    with engine.connect() as connection, connection.begin() as undone:
        connection.exec_driver_sql("BEGIN")  # which Python's driver would do at the first change of rows only
        with pytest.raises(RuntimeError):
            broken.prepare(connection)
        undone.rollback()
    for _ in range(2):
        with engine.begin() as connection:
            third.prepare(connection)
    assert [column["name"] for column in inspect(engine).get_columns("things")] == ["a", "b", "c"]
    with pytest.raises(ServiceStartError, match="newer"), engine.begin() as connection:
        first.prepare(connection)
    engine.dispose()


def add(column: str) -> Callable[[Connection], None]:
    def migrate(connection: Connection) -> None:
        connection.execute(text(f"ALTER TABLE things ADD COLUMN {column} INTEGER"))

    return migrate


def fail(connection: Connection) -> None:
    raise RuntimeError


# ---- PostgreSQL -------------------------------------------------------------------------------------------

SECRET = "hunter2-the-secret"
UNREACHABLE = f"postgresql+psycopg://me:{SECRET}@127.0.0.1:9/pai"


def started_with(url: str, folder: Path) -> str:
    with pytest.raises(ServiceStartError) as caught:
        Service(ServiceSettings(data_dir=folder, port=0, database_url=url)).run()
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    said = started_with(UNREACHABLE, tmp_path)
    assert said.startswith("the database postgresql+psycopg://me:***@127.0.0.1:9/pai cannot be used: ")
    assert "refused" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("not a url", "not a URL such as"),
        ("", "not a URL such as"),
        (f"mysql://me:{SECRET}@host/db", "'mysql' is not supported"),
        (f"postgresql://me:{SECRET}@host:port/db", "not a URL such as"),
    ],
)
def test_what_is_no_database_of_ours_is_told(tmp_path: Path, url: str, said: str) -> None:
    assert said in started_with(url, tmp_path)


def test_a_missing_driver_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert install_command("postgres") in started_with(UNREACHABLE, tmp_path)


def test_the_password_is_in_no_repr(tmp_path: Path) -> None:
    settings = ServiceSettings(data_dir=tmp_path, database_url=UNREACHABLE)
    url = postgres_url(f"{UNREACHABLE}?password={SECRET}&sslmode=require")
    assert SECRET not in f"{settings!r} {url!r}"[: len(repr(settings)) + 1] + display_url(url)


@on_sqlite
def test_a_folder_keeps_to_its_database(start: Callable[..., Any], tmp_path: Path) -> None:
    with start(ScriptedExecutor()):
        pass
    (tmp_path / "data" / "database").write_text("postgresql+psycopg://me:***@host/pai\n")
    with pytest.raises(ServiceStartError, match=r"start the service with --database postgresql\+psycopg://me"):
        Service(ServiceSettings(data_dir=tmp_path / "data")).run()


@on_postgres
def test_two_services_on_one_database_are_refused(start: Callable[..., Any], tmp_path: Path) -> None:
    url = url_for(tmp_path)
    with start(ScriptedExecutor(), tmp_path / "a", database_url=url):
        with (
            pytest.raises(ServiceStartError, match="another service already runs on the database"),
            start(ScriptedExecutor(), tmp_path / "b", database_url=url),
        ):
            pass
        with start(ScriptedExecutor(), tmp_path / "c"):  # in a schema of its own
            pass
    with start(ScriptedExecutor(), tmp_path / "a", database_url=url):
        pass


@on_postgres
def test_jobs_and_objects_outlive_a_restart(start: Callable[..., Any], tmp_path: Path) -> None:
    with start(ScriptedExecutor()) as client:
        job_id = client.create(
            job_body(TrainingJobName="ü" * 256, Labels=[{"Key": "\U0001f600" * 256, "Value": "é" * 256}])
        )
        client.bucket().put_object("a/b", b"content")
    with start(ScriptedExecutor()) as client:
        assert client.get(f"/trainingjobs/{job_id}")["TrainingJobName"] == "ü" * 256
        assert client.bucket().get_object("a/b").read() == b"content"
    assert [path.name for path in tmp_path.rglob("*.db")] == ["objects.db"]


@on_postgres
def test_connections_that_the_server_ends_are_made_again(start: Callable[..., Any], tmp_path: Path) -> None:
    from sqlalchemy import make_url

    url = url_for(tmp_path / "data")
    server = create_engine(make_url(str(url)), isolation_level="AUTOCOMMIT")
    with start(ScriptedExecutor()) as client:
        job_id = client.create(job_body())
        with server.connect() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%service_lease%'"
                    " AND pid != pg_backend_pid()"
                )
            )
        assert client.get(f"/trainingjobs/{job_id}")["TrainingJobId"] == job_id
    server.dispose()


@on_postgres
def test_writers_at_once_lose_nothing(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), slots=1) as client:
        ids: list[str] = []
        threads = [threading.Thread(target=lambda: ids.append(client.create(job_body()))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.get("/trainingjobs")["TotalCount"] == len(set(ids)) == 20


def test_the_version_of_the_tables_grows_with_the_migrations() -> None:
    assert JOBS.version == 1 + len(JOBS.migrations)


# ---- a server that is away --------------------------------------------------------------------------------


def psycopg_error(name: str, sqlstate: str | None) -> Exception:
    psycopg = pytest.importorskip("psycopg")
    error: Exception = getattr(psycopg, name)("connection failed: the server said so")
    error.sqlstate = sqlstate  # type: ignore[attr-defined]
    return OperationalError("SELECT 1", {}, error)


@pytest.mark.parametrize(
    ("name", "sqlstate", "is_away"),
    [
        ("OperationalError", None, True),
        ("OperationalError", "57P03", True),
        ("OperationalError", "08006", True),
        ("OperationalError", "57014", False),
        ("InternalError", None, False),
    ],
    ids=["refused", "starting", "broken connection", "a statement that takes too long", "another error"],
)
def test_requests_while_the_database_is_away_are_to_be_repeated(
    start: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    sqlstate: str | None,
    is_away: bool,
) -> None:
    with start(ScriptedExecutor()) as client:
        error = psycopg_error(name, sqlstate)

        def fail(jobs: Jobs, *_: object, **__: object) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(Jobs, "require_visible", fail)
            answer = client.call("GET", "/trainingjobs/train1")
    assert answer.status_code == (503 if is_away else 500)
    assert answer.json()["Code"] == ("ServiceUnavailable" if is_away else "InternalError")
    assert answer.headers.get("Retry-After") == ("5" if is_away else None)
    assert any(record.exc_info for record in caplog.records) is not is_away


def test_a_file_is_never_away() -> None:
    locked = OperationalError("SELECT 1", {}, sqlite3.OperationalError("database is locked"))
    assert not is_database_away(locked)
    assert is_database_away(PoolTimeoutError("QueuePool limit of size 10 reached"))
