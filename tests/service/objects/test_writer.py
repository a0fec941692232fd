"""The thread that writes to SQLite: many operations in a transaction, each wholly or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pai_sdk._service.oss.index_database import IndexDatabase
from pai_sdk._service.oss.writer import Writer
from tests.support.waiting import PATIENCE_S, until

NUMBERS = "CREATE TABLE numbers (number INTEGER PRIMARY KEY)"
CHILDREN = "CREATE TABLE children (parent INTEGER REFERENCES numbers DEFERRABLE INITIALLY DEFERRED)"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[IndexDatabase]:
    database = IndexDatabase(tmp_path)
    database.write(lambda connection: connection.execute(NUMBERS))
    yield database
    database.close()


@pytest.fixture
def writer(database: IndexDatabase) -> Writer:
    return database.writer


class Commits:
    """Counts the commits of a writer, and lets them wait.

    Attributes:
        count: those that were begun.
        allowed: a commit waits for it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.allowed = threading.Event()
        self.allowed.set()
        commit = Writer._commit

        def counted(writer: Writer, database: sqlite3.Connection) -> None:
            self.count += 1
            assert self.allowed.wait(PATIENCE_S)
            commit(writer, database)

        monkeypatch.setattr(Writer, "_commit", counted)


@pytest.fixture
def commits(database: IndexDatabase, monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch)


def add(number: int) -> Callable[[sqlite3.Connection], int]:
    def operation(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        return number

    return operation


def numbers(database: IndexDatabase) -> list[int]:
    return [number for (number,) in database.query("SELECT number FROM numbers ORDER BY number", ())]


def outcomes(writer: Writer, *operations: Callable[[sqlite3.Connection], object]) -> list[object]:
    """Run operations in one batch: the thread is busy until all of them wait."""
    busy, go_on = threading.Event(), threading.Event()

    def wait(connection: sqlite3.Connection) -> None:
        busy.set()
        assert go_on.wait(PATIENCE_S)

    def outcome(operation: Callable[[sqlite3.Connection], object]) -> object:
        try:
            return writer.run(operation)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(operations) + 1) as pool:
        first = pool.submit(writer.run, wait)
        assert busy.wait(PATIENCE_S)
        given = []
        for number, operation in enumerate(operations, 1):
            given.append(pool.submit(outcome, operation))
            until(lambda number=number: writer._queue.qsize() == number)
        go_on.set()
        first.result(PATIENCE_S)
        return [each.result(PATIENCE_S) for each in given]


def test_what_is_written_is_forced_to_the_disk_with_each_commit(database: IndexDatabase) -> None:
    def pragmas(connection: sqlite3.Connection) -> list[object]:
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert database.write(pragmas) == ["wal", 2]  # 2: FULL


def test_operations_that_wait_are_committed_together(
    database: IndexDatabase, writer: Writer, commits: Commits
) -> None:
    assert outcomes(writer, *map(add, range(10))) == list(range(10))
    assert commits.count == 2  # that of the operation that kept the thread busy, and one for the ten
    assert numbers(database) == list(range(10))


def test_nothing_is_answered_before_it_is_committed(
    database: IndexDatabase, writer: Writer, commits: Commits
) -> None:
    commits.allowed.clear()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(writer.run, add(1))
        until(lambda: commits.count == 1)
        assert not answer.done()
        assert numbers(database) == []
        commits.allowed.set()
        assert answer.result(PATIENCE_S) == 1
    assert numbers(database) == [1]


def test_an_operation_that_fails_undoes_only_what_it_did(
    database: IndexDatabase, writer: Writer, commits: Commits
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        add(2)(connection)
        raise ValueError("no")

    first, second, third = outcomes(writer, add(1), fail, add(3))
    assert (first, str(second), third) == (1, "no", 3)
    assert numbers(database) == [1, 3]
    assert commits.count == 2


def test_a_transaction_that_the_database_undid_costs_only_the_operation_that_failed(
    database: IndexDatabase, writer: Writer
) -> None:
    """As SQLite does when the disk is full."""

    def lose(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    first, second, third = outcomes(writer, add(1), lose, add(3))
    assert (first, third) == (1, 3)
    assert "disk is full" in str(second)
    assert numbers(database) == [1, 3]
    assert writer.run(add(4)) == 4


def test_operations_whose_commit_failed_are_run_again_each_alone(
    database: IndexDatabase, writer: Writer, commits: Commits
) -> None:
    """SQLite leaves a transaction open whose commit failed."""
    database.write(lambda connection: connection.execute(CHILDREN).rowcount)
    writer._connection.execute("PRAGMA foreign_keys=ON")

    def add_orphan(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO children VALUES (77)")

    first, second, third = outcomes(writer, add(1), add_orphan, add(3))
    assert (first, third) == (1, 3)
    assert "FOREIGN KEY constraint failed" in str(second)
    assert numbers(database) == [1, 3]
    assert database.query("SELECT count(*) FROM children", ()) == [(0,)]
    assert writer.run(add(4)) == 4
    assert commits.count == 7  # the table, the busy one, the three together, each alone, and the last


def test_a_connection_that_fails_in_undoing_is_replaced(
    database: IndexDatabase, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(writer: Writer, database: sqlite3.Connection) -> None:
        database.close()
        raise sqlite3.OperationalError("disk I/O error")

    def cannot_connect(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_commit", fail)
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            writer.run(add(1))
        patch.setattr("pai_sdk._service.oss.writer.connect", cannot_connect)
        for _ in range(2):
            with pytest.raises(sqlite3.Error):
                writer.run(add(1))
    assert writer.run(add(2)) == 2
    assert numbers(database) == [2]


def test_a_database_that_is_locked_is_an_error_and_can_be_used_afterwards(
    database: IndexDatabase, writer: Writer, tmp_path: Path
) -> None:
    database.write(lambda connection: connection.execute("PRAGMA busy_timeout = 1") and None)
    other = sqlite3.connect(tmp_path / "objects.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        writer.run(add(1))
    other.execute("ROLLBACK")
    other.close()
    assert writer.run(add(1)) == 1
    assert numbers(database) == [1]


def test_an_event_loop_gets_its_answers_and_one_batch(
    database: IndexDatabase, writer: Writer, commits: Commits
) -> None:
    async def ask() -> list[object]:
        return await asyncio.gather(
            *(writer.run_soon(add(each % 9)) for each in range(10)), return_exceptions=True
        )

    found = asyncio.run(ask())
    assert found[:9] == list(range(9))
    assert "UNIQUE" in str(found[9])
    assert commits.count == 1


def test_a_request_that_is_cancelled_takes_no_answer_from_others(
    database: IndexDatabase, writer: Writer, commits: Commits
) -> None:
    async def ask() -> int:
        commits.allowed.clear()
        given_up, waiting = writer.run_soon(add(1)), writer.run_soon(add(2))
        while not commits.count:
            await asyncio.sleep(0.001)
        given_up.cancel()
        commits.allowed.set()
        return await waiting

    assert asyncio.run(ask()) == 2
    assert numbers(database) == [1, 2]


def test_a_loop_that_is_gone_holds_nothing_up(database: IndexDatabase, writer: Writer, commits: Commits) -> None:
    async def leave() -> None:
        commits.allowed.clear()
        writer.run_soon(add(1))
        while not commits.count:
            await asyncio.sleep(0.001)

    asyncio.run(leave())
    commits.allowed.set()
    assert writer.run(add(2)) == 2
    assert numbers(database) == [1, 2]


def test_what_waits_is_written_before_the_end_and_what_comes_later_is_refused(
    database: IndexDatabase, writer: Writer, commits: Commits, tmp_path: Path
) -> None:
    commits.allowed.clear()
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(writer.run, add(1))
        until(lambda: commits.count == 1)
        second = pool.submit(writer.run, add(2))
        until(lambda: writer._queue.qsize() == 1)
        closing = pool.submit(database.close)
        until(lambda: writer._is_closed)
        commits.allowed.set()
        closing.result(PATIENCE_S)
        assert (first.result(PATIENCE_S), second.result(PATIENCE_S)) == (1, 2)
    with pytest.raises(RuntimeError, match="closed"):
        writer.run(add(3))
