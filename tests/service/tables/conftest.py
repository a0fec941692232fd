"""The tables of a service on a real port, and pyodps as its client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from odps import ODPS

from pai_sdk._core.config.credentials import Credentials
from pai_sdk._data.trace.odps import OdpsSink
from pai_sdk._service.identity.rate import KeyRates
from pai_sdk._service.odps.memory_budget import MemoryBudget, RowLimits
from pai_sdk._service.odps.table_rights import ALL_TABLES, TableRights
from pai_sdk._service.odps.table_rows import ROWS_BUDGET_BYTES
from pai_sdk._service.odps.table_store import TableStore
from pai_sdk._service.odps.tables_app import TablesApp
from tests.support.waiting import PATIENCE_S, until

KEY = Credentials("test-id", "test-secret")


@dataclass(frozen=True)
class Tables:
    """A running service of tables."""

    root: Path
    url: str
    keys: dict[str, str]

    def client(self, url: str = "", key_id: str = KEY[0], **options: object) -> ODPS:
        # The tunnel's endpoint is given: pyodps keeps what it was told for an endpoint, in the whole process.
        url = url or self.url
        return ODPS(key_id, KEY[1], project="shop", endpoint=url, tunnel_endpoint=url, **options)

    def sink(self, table: str, url: str = "", **options: object) -> OdpsSink:
        url = url or self.url
        return OdpsSink(table, project="shop", endpoint=url, tunnel_endpoint=url, credentials=KEY, **options)

    def rows(self, table: str, partition: str | None = None) -> list[dict[str, object]]:
        """All rows, as pyodps reads them."""
        with self.client().get_table(table).open_reader(partition=partition, arrow=True) as reader:
            return [row for batch in reader for row in batch.to_pylist()]


@contextmanager
def serving(
    root: Path, rates: KeyRates | None = None, limits: RowLimits | None = None, **rights: TableRights
) -> Iterator[Tables]:
    """A service; `rights` are those of further access key ids, whose secret is that of `KEY`."""
    keys = {KEY[0]: KEY[1], **dict.fromkeys(rights, KEY[1])}
    app = TablesApp(
        TableStore(root),
        keys,
        rates=rates,
        rights_of=lambda key_id: rights.get(key_id, ALL_TABLES),
        budget=None if limits is None else MemoryBudget(ROWS_BUDGET_BYTES, limits=limits),
    )
    config = uvicorn.Config(app, port=0, lifespan="off", log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the server's start")
        yield Tables(root, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", keys)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with serving(tmp_path_factory.mktemp("tables")) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A table of the test's own."""
    return "".join(sign if sign.isalnum() else "_" for sign in request.node.name)[:80].lower()
