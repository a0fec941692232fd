"""The key of a job opens the tables that the job names, and only for what it names them. By pyodps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from odps import ODPS, errors
from odps.tunnel import TableTunnel

from pai_sdk._service.odps.table_rights import TableRights, parse_table_uri
from tests.service.tables.conftest import KEY, Tables, serving

RIGHTS = TableRights(
    [parse_table_uri("odps://shop/tables/Input"), parse_table_uri("odps://shop/tables/days/dt=1")],
    [parse_table_uri("odps://shop/tables/output/"), parse_table_uri("odps://shop/tables/parts/dt=1/")],
)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    with serving(tmp_path, job=RIGHTS) as found:
        client = found.client()
        for name in ("input", "other", "output"):
            client.create_table(name, "n bigint")
        for name in ("days", "parts"):
            table = client.create_table(name, ("n bigint", "dt string"))
            for day in "12":
                table.create_partition(f"dt={day}")
        for name, partition in (("input", None), ("other", None), ("days", "dt=1"), ("days", "dt=2")):
            write(client, name, partition)
        yield found


def write(client: ODPS, name: str, partition: str | None = None) -> None:
    with client.get_table(name).open_writer(partition=partition, arrow=True) as writer:
        writer.write(pa.table({"n": [1]}))


def read(client: ODPS, name: str, partition: str | None = None) -> list[int]:
    with client.get_table(name).open_reader(partition=partition) as reader:
        return [record["n"] for record in reader]


ALLOWED: list[Callable[[ODPS], object]] = [
    lambda client: read(client, "input"),
    lambda client: read(client, "days", "dt=1"),
    lambda client: write(client, "output"),
    lambda client: write(client, "parts", "dt=1"),
    lambda client: client.get_table("parts").create_partition("dt=1", if_not_exists=True),
    lambda client: client.get_table("parts").delete_partition("dt=1"),
    lambda client: client.create_table("parts", ("n bigint", "dt string"), if_not_exists=True),
    lambda client: client.delete_table("output"),
]
REFUSED: list[Callable[[ODPS], object]] = [
    lambda client: read(client, "other"),
    lambda client: client.exist_table("other"),
    lambda client: write(client, "other"),
    lambda client: client.delete_table("other"),
    lambda client: client.create_table("new", "n bigint"),
    lambda client: client.create_table("output", "n bigint", project="another"),
    lambda client: client.execute_sql("DROP TABLE another.output"),
    lambda client: write(client, "input"),
    lambda client: client.delete_table("input"),
    lambda client: read(client, "days", "dt=2"),
    lambda client: client.get_table("days").delete_partition("dt=1"),
    lambda client: write(client, "parts", "dt=2"),
    lambda client: client.get_table("parts").create_partition("dt=3"),
    lambda client: client.get_table("parts").delete_partition("dt=2"),
    lambda client: client.delete_table("parts"),
]


@pytest.mark.parametrize("number", range(len(ALLOWED)))
def test_what_the_job_names_is_open(tables: Tables, number: int) -> None:
    ALLOWED[number](tables.client(key_id="job"))


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_everything_else_is_refused(tables: Tables, number: int) -> None:
    with pytest.raises(errors.ODPSError, match="gives no access to table"):
        REFUSED[number](tables.client(key_id="job"))
    for name, partition in (("input", None), ("other", None), ("days", "dt=1"), ("days", "dt=2")):
        assert read(tables.client(), name, partition) == [1]
    assert len(list(tables.client().get_table("parts").partitions)) == 2


def test_sessions_of_other_keys_are_refused(tables: Tables) -> None:
    own, tunnel = tables.client(), TableTunnel(tables.client(key_id="job"), endpoint=tables.url)
    upload = TableTunnel(own, endpoint=tables.url).create_upload_session("other")
    download = TableTunnel(own, endpoint=tables.url).create_download_session("other")
    with pytest.raises(errors.ODPSError, match="gives no access to table"):
        tunnel.create_upload_session("output", upload_id=upload.id)
    with pytest.raises(errors.ODPSError, match="gives no access to table"):
        tunnel.create_download_session("input", download_id=download.id)


def test_only_the_job_s_tables_are_listed(tables: Tables) -> None:
    names = [table.name for table in tables.client(key_id="job").list_tables()]
    assert names == ["days", "input", "output", "parts"]
    assert KEY[1] not in str(names)
