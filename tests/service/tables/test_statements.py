"""Statements and partitions as they are parsed: each word is understood, or the statement is refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odps import errors

from pai_sdk._service.odps.statements import Statement, read_partition, read_statement
from pai_sdk._service.odps.table_errors import TableError
from pai_sdk._service.odps.table_store import TableStore
from tests.service.tables.conftest import Tables
from tests.support.messages import refused


def test_a_table_with_all_clauses() -> None:
    sql = """
        create table if not exists shop.`t` (
            `a` ARRAY<STRUCT<x:INT, y:DECIMAL(10, 2)>> NOT NULL COMMENT 'it\\'s (a), "b"; c',
            b string
        ) COMMENT 'of ) steps' PARTITIONED BY (`dt` STRING COMMENT 'day')
        TBLPROPERTIES ('k' = 'v;', "transactional"='true') LIFECYCLE 7;;
    """
    assert read_statement(sql) == Statement(
        "create",
        "t",
        True,
        "shop",
        {"a": "array<struct<x:int,y:decimal(10,2)>>", "b": "string"},
        {"dt": "string"},
        lifecycle=7,
        properties={"k": "v;", "transactional": "true"},
    )


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("DROP TABLE t", Statement("drop", "t", False)),
        ("drop table if exists `shop`.`t`;", Statement("drop", "t", True, "shop")),
        (
            "ALTER TABLE t ADD PARTITION (dt='a,b)', `h`=2)",
            Statement("add", "t", False, partition={"dt": "a,b)", "h": "2"}),
        ),
        ('ALTER TABLE t DROP IF EXISTS PARTITION (dt="1")', Statement("remove", "t", True, partition={"dt": "1"})),
    ],
)
def test_other_statements(sql: str, found: Statement) -> None:
    assert read_statement(sql) == found


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "does not run ''"),
        ("SELECT 1", "does not run 'SELECT 1'"),
        ("-- a comment\nDROP TABLE t", "does not run"),
        (
            "DROP TABLE t; DROP TABLE u",
            "end of the only statement of a request is expected instead of 'DROP TABLE u'",
        ),
        ("CREATE TABLE t (a BIGINT); DROP TABLE u", "end of the only statement"),
        ("ALTER TABLE t DROP PARTITION (dt=1); x", "end of the only statement"),
        ("DROP TABLE t PURGE", "end of the statement is expected instead of 'PURGE'"),
        ("DROP TABLE t, u", "end of the statement"),
        ("DROP TABLE t IF EXISTS", "end of the statement"),
        ("DROP TABLE a.b.c", "end of the statement"),
        ("DROP VIEW t", "does not run"),
        ("CREATE TABLE t (a BIGINT) STORED AS ORC", "instead of 'STORED AS ORC'"),
        ("CREATE TABLE t (a BIGINT) CLUSTERED BY (a)", "instead of 'CLUSTERED BY"),
        ("CREATE TABLE t (a BIGINT) AS SELECT 1", "instead of 'AS SELECT 1'"),
        ("CREATE TABLE t (a BIGINT, PRIMARY KEY (a))", "is not a type"),
        ("CREATE TABLE t (a BIGINT DEFAULT 1)", "is not a type"),
        ("CREATE TABLE t (a BIGINT) LIFECYCLE 7 LIFECYCLE 8", "LIFECYCLE more than once"),
        ("CREATE TABLE t (a BIGINT) LIFECYCLE x", "a number of days"),
        ("CREATE TABLE t (a BIGINT, A STRING)", "defined more than once"),
        ("CREATE TABLE t (a BIGINT, a STRING)", "defined more than once"),
        ("CREATE TABLE t (a BIGINT) PARTITIONED BY (A STRING)", "defined more than once"),
        ("CREATE TABLE t ()", "the name of a column"),
        ("CREATE TABLE t (a)", "a type is expected"),
        ("CREATE TABLE t (a BIGINT", "ends where"),
        ("CREATE TABLE t (a BIGINT) COMMENT 'x", "quote at character 35 is not closed"),
        ("CREATE TABLE t (a DECIMAL(99999999999999999999, 2))", "needs a number"),
        (f"CREATE TABLE t (a {'array<' * 3000}int{'>' * 3000})", "nested more than 20 deep"),
        (f"CREATE TABLE {'t' * 129} (a int)", "more than 128 bytes"),
        (f"CREATE TABLE t ({','.join(f'a{n} int' for n in range(1201))})", "more than 1,200 columns"),
        (f"CREATE TABLE t (a int) PARTITIONED BY ({','.join(f'p{n} int' for n in range(7))})", "more than 6"),
        (f"CREATE TABLE t (a int) COMMENT '{'x' * 1025}'", "more than 1,024 bytes"),
        (f"CREATE TABLE t (a int) COMMENT '{'x' * (2 << 20)}'", "2,097,152 are allowed"),
        (f"DROP TABLE t {'; ' * 100_001}", "more than 100,000 words and signs"),
        ("ALTER TABLE t DROP PARTITION ()", "the name of a partition column"),
        ("ALTER TABLE t ADD PARTITION ()", "the name of a partition column"),
        ("ALTER TABLE t DROP PARTITION (dt)", "'=' is expected"),
        ("ALTER TABLE t DROP PARTITION (dt>1)", "'=' is expected"),
        ("ALTER TABLE t DROP PARTITION (dt=x  y)", "')' is expected instead of 'y)'"),
        ("ALTER TABLE t DROP PARTITION (dt=1,)", "the name of a partition column"),
        ("ALTER TABLE t DROP PARTITION (dt=1, dt=2)", "more than one value"),
        ("ALTER TABLE t DROP PARTITION (dt=1), PARTITION (dt=2)", "end of the statement"),
        ("ALTER TABLE t DROP PARTITION (dt='')", "cannot be the value"),
        ("ALTER TABLE t ADD PARTITION (dt=1) LOCATION 'x'", "end of the statement"),
        ("ALTER TABLE t ADD COLUMNS (b int)", "PARTITION is expected"),
        ("ALTER TABLE t RENAME TO u", "ADD or DROP is expected"),
        ("ALTER TABLE t DROP IF NOT EXISTS PARTITION (dt=1)", "PARTITION is expected"),
    ],
)
def test_what_is_not_understood_is_refused(sql: str, message: str) -> None:
    with refused(TableError) as caught:
        read_statement(sql)
    assert len(caught.value.message) < 1200
    assert caught.value.status_code == 400


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("dt=20261122", {"dt": "20261122"}),
        ("dt='2026-11-22 10:00',hour=2", {"dt": "2026-11-22 10:00", "hour": "2"}),
        ('`dt` = "a,b/c=d"', None),
        ("dt=1/hour=2", {"dt": "1", "hour": "2"}),
        ("dt=x  y", {"dt": "x  y"}),
    ],
)
def test_partitions(text: str, found: dict[str, str] | None) -> None:
    if found is None:
        with refused(TableError):
            read_partition(text)
    else:
        assert read_partition(text) == found


BAD_PARTITIONS = (
    "=",
    "dt",
    "dt=",
    "dt=1,",
    "dt=1,,hour=2",
    "dt='1",
    "dt='1'2",
    "d t=1",
    "dt=1,dt=2",
    "dt=..",
    "dt=a\\b",
    "dt=a\0b",
    "dt=a\nb",
    "dt=\ud800",
    f"dt={'x' * 256}",
    f"dt={'é' * 128}",
    f"dt={'x' * 9000}",
    ",".join(f"p{n}=1" for n in range(7)),
)


@pytest.mark.parametrize("text", BAD_PARTITIONS)
def test_partitions_that_cannot_be_read(text: str) -> None:
    with refused(TableError) as caught:
        read_partition(text)
    assert len(caught.value.message) < 500


WORDS = (
    *"CREATE TABLE ALTER DROP ADD PARTITION PARTITIONED BY IF NOT EXISTS COMMENT TBLPROPERTIES LIFECYCLE".split(),  # noqa: SIM905
    *"t `t` 'x' \"y\" ( ) , ; = . < > bigint array decimal 10 dt \\ é ' `".split(),  # noqa: SIM905
)


@given(st.lists(st.sampled_from(WORDS), max_size=25), st.sampled_from([" ", "", "\n"]))
def test_any_text_is_a_statement_or_an_error(words: list[str], between: str) -> None:
    for begin in ("", "CREATE TABLE t (a int) ", "ALTER TABLE t DROP PARTITION (", "CREATE TABLE t (a "):
        with suppress(TableError):
            statement = read_statement(begin + between.join(words))
            assert statement.kind != "remove" or statement.partition


@given(st.text(alphabet="dt='\",/ \\`x1é\0", max_size=30))
def test_any_text_is_a_partition_or_an_error(text: str) -> None:
    try:
        pairs = read_partition(text)
    except TableError:
        return
    assert (
        read_partition(",".join(f"{name}='{value}'" for name, value in pairs.items() if "'" not in value))
        is not None
    )


def test_rows_of_a_table_without_partitions_are_kept(tables: Tables, name: str) -> None:
    client = tables.client()
    table = client.create_table(name, "a bigint")
    with table.open_writer(arrow=True) as writer:
        writer.write(pa.table({"a": [1, 2]}))
    for sql in (
        f"ALTER TABLE {name} DROP PARTITION ()",
        f"ALTER TABLE {name} DROP IF EXISTS PARTITION (a='1')",
        f"DROP TABLE IF EXISTS no_such_table; DROP TABLE {name}",
    ):
        with pytest.raises(errors.ODPSError):
            client.execute_sql(sql)
    assert [row["a"] for row in tables.rows(name)] == [1, 2]


def test_a_part_of_a_partition_s_columns_drops_nothing(tables: Tables, name: str) -> None:
    client = tables.client()
    table = client.create_table(name, ("a bigint", "dt string, hour string"))
    table.create_partition("dt=1,hour=2")
    with pytest.raises(errors.ODPSError, match="partition columns are: dt, hour"):
        client.execute_sql(f"ALTER TABLE {name} DROP PARTITION (dt=1)")
    assert table.exist_partition("dt=1,hour=2")


def test_a_statement_about_another_project_is_not_done_in_this_one(tables: Tables, name: str) -> None:
    client = tables.client()
    client.create_table(name, "a bigint")
    with pytest.raises(errors.ODPSError, match=f"Table not found - another.{name}"):
        client.execute_sql(f"DROP TABLE another.{name}")
    assert client.exist_table(name)


def test_a_partition_that_was_dropped_takes_no_commit(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.create("shop", read_statement("CREATE TABLE t (a BIGINT) PARTITIONED BY (dt STRING)"))
    table = store.table("shop", "t")
    upload = store.start_upload(table, {"dt": "1"}, create=True)
    assert store.remove_partition(table, {"dt": "1"})
    with refused(TableError, code="NoSuchPartition") as caught:
        store.commit(upload)
    assert caught.value.status_code == 404
