"""Reads traces from Parquet: as tables of Arrow and pandas, and with SQL."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk.errors import MissingExtraError, TraceError
from pai_sdk.trace.parquet import is_local

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from pai_sdk.storage.store import Store

__all__ = ["TraceData", "read_trace", "trace_in"]

_SUFFIX = ".parquet"


def read_trace(folder: str | Path, session: Any = None) -> TraceData:
    """The trace in a folder, which a `ParquetSink` has written: of one run, or of many.

    Args:
        folder: a local path or a URI.
        session: whose keys `oss://` takes; the default session without it.

    Raises:
        TraceError: there is no trace.

    Example:
        >>> read_trace("/no/such/folder")
        Traceback (most recent call last):
            ...
        pai_sdk.errors.TraceError: /no/such/folder has no trace: there is no Parquet file in it
    """
    from pai_sdk.storage.store import open_store

    return trace_in(open_store(str(folder), session), str(folder))


def trace_in(store: Store, folder: str) -> TraceData:
    """The trace in a store; errors as for `read_trace`.

    Args:
        store: the folder.
        folder: its path or URI.
    """
    paths = [file.path for file in store.list() if file.path.endswith(_SUFFIX)]
    if not paths:
        raise TraceError(f"{folder} has no trace: there is no Parquet file in it")
    return TraceData(folder, store, paths)


class TraceData:
    """The rows of a trace. Partitions, such as the run's id, are columns.

    Files of a local folder are read only as far as a query needs them; others are read as a whole.

    Attributes:
        folder: where it is.
        paths: its files.
    """

    def __init__(self, folder: str, store: Store, paths: list[str]) -> None:
        self.folder = folder
        self.paths = paths
        self._store = store

    def __repr__(self) -> str:
        return f"<TraceData {self.folder} {len(self.paths)} file{'s' if len(self.paths) != 1 else ''}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._dataset(self.paths[:1]).schema

    def to_arrow(self) -> pa.Table:
        """All rows."""
        return self._dataset(self.paths).to_table()

    def to_pandas(self) -> pd.DataFrame:
        """All rows, for pandas."""
        return self.to_arrow().to_pandas()

    def head(self, rows: int = 10) -> pa.Table:
        """The first rows."""
        found = self._dataset(self.paths[:1]).head(rows)
        return found if found.num_rows >= rows else self._dataset(self.paths).head(rows)

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """The answer of DuckDB to a query of the table `trace`.

        Raises:
            MissingExtraError: DuckDB is not installed.
            TraceError: the query is wrong; the message has DuckDB's words.
        """
        try:
            import duckdb
        except ImportError as error:
            text = "queries need duckdb, which is not installed; run: pip install 'pai-sdk[odps]'"
            raise MissingExtraError(text, extra="odps") from error
        connection = duckdb.connect()
        connection.register("trace", self._dataset(self.paths))
        try:
            return connection.sql(sql)
        except duckdb.Error as error:
            raise TraceError(f"the query failed: {error}") from error

    def rows_of(self, sql: str, most: int) -> pa.Table:
        """The first rows of a query's answer; errors as for `query`."""
        import duckdb
        import pyarrow as pa

        answer = self.query(sql)
        if answer is None:  # a statement without rows
            return pa.table({})
        try:
            return answer.limit(most).to_arrow_table()
        except duckdb.Error as error:
            raise TraceError(f"the query failed: {error}") from error

    def _dataset(self, paths: list[str]) -> Any:
        import pyarrow as pa
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        names = [part.partition("=")[0] for part in self.paths[0].split("/")[:-1] if "=" in part]
        partitioning = ds.partitioning(pa.schema([(name, pa.string()) for name in names]), flavor="hive")
        root = is_local(self.folder)
        if root is not None:
            files = [str(root / path) for path in paths]
            return ds.dataset(files, format="parquet", partitioning=partitioning, partition_base_dir=str(root))
        tables = []
        for path in paths:
            table = pq.read_table(io.BytesIO(b"".join(self._store.read(path))), partitioning=None)
            for name, _, value in (part.partition("=") for part in path.split("/")[:-1] if "=" in part):
                table = table.append_column(name, pa.array([value] * table.num_rows, pa.string()))
            tables.append(table)
        return ds.dataset(pa.concat_tables(tables))
