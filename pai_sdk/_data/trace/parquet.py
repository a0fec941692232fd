"""Traces as Parquet files: one file a block, below `<partition>=<value>/…/run=<run id>/`."""

from __future__ import annotations

import io
import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._data.run.report.layout import RunLayout, check_run_id, is_run_id
from pai_sdk._data.run.report.session import current_context
from pai_sdk._data.storage.store import open_store
from pai_sdk._data.storage.stores.local import path_of_file_uri
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._data.trace.trace_files import block_name, commit_name, new_attempt, new_session
from pai_sdk.errors import InvalidInputError, Problem, TraceError

if TYPE_CHECKING:
    import pyarrow as pa

    from pai_sdk._data.storage.store import Store

_NOT_IN_VALUES = "/\\=\0"


class ParquetSink:
    """Writes a trace as a Parquet data set into a folder. Many runs and ranks can share the folder.

    Each block is a file. A commit adds a file without rows, whose name has the number and the bytes of the blocks;
    `read_trace` reads complete commits. DuckDB, pandas and pyarrow read the folder as well, with the partitions as
    columns; they read blocks before the commit, too.

    Args:
        folder: a local path or a URI: `oss://bucket/traces/`, `s3://…`, `memory://…`.
        partition: names and values of folders above the run's: `{"dt": "2026-11-22"}`.
        compression: of Parquet: `zstd`, `snappy`, `none`, ….
        session: the session with the keys for `oss://`; the default session without it.

    Raises:
        InvalidInputError: a name or value of a partition cannot be that of a folder.

    Example:
        >>> ParquetSink("oss://bucket/traces/", partition={"dt": "2026-11-22"})
        ParquetSink('oss://bucket/traces/', partition={'dt': '2026-11-22'})
    """

    # The limits of a table: rows committed after the last checkpoint are doubled when the run is killed and
    # resumes.
    max_blocks = 10_000
    max_age_s = 12 * 3600.0

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        partition: Mapping[str, str] | None = None,
        compression: str = "zstd",
        session: Any = None,
    ) -> None:
        self.folder = os.fspath(folder)
        self.partition = dict(partition or {})
        self.compression = compression
        self._session = session
        self._run_folder = self._attempt = ""
        problems = [
            Problem(f"partition[{name!r}]", f"{value!r} cannot be the name of a folder", "no '/', '\\' or '='")
            for name, value in self.partition.items()
            if not value or value in (".", "..") or any(sign in name + value for sign in _NOT_IN_VALUES)
        ]
        if problems:
            raise InvalidInputError(problems)

    def __repr__(self) -> str:
        partition = f", partition={self.partition}" if self.partition else ""
        return f"ParquetSink({self.folder!r}{partition})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "store"}

    def prepare(self, schema: pa.Schema, run_id: str) -> pa.Schema:
        """Returns the schema unchanged: the run's id is in the path of each file."""
        check_run_id(run_id)
        clash = sorted({"run", *self.partition} & {name.lower() for name in schema.names})
        if clash:
            problems = [Problem(f"column {name!r}", "is also a partition", "rename the column") for name in clash]
            raise InvalidInputError(problems)
        import pyarrow.parquet  # noqa: F401 - early: during the exit of the process, some imports fail

        import pai_sdk._data.storage.store  # noqa: F401 - early, for the same reason

        self._run_folder = "".join(f"{name}={value}/" for name, value in {**self.partition, "run": run_id}.items())
        self._attempt = new_attempt()
        return schema

    @cached_property
    def store(self) -> Store:
        """The store of the folder."""
        return open_store(self.folder, self._session)

    def check(self) -> None:
        """Opens the store.

        Raises:
            PaiError: the URI is wrong, or a library or a key is missing.
        """
        _ = self.store

    def open(self) -> _Files:
        """Starts a session: files with names that no other writer has."""
        context = current_context()
        rank = 0 if context is None else context.rank
        session = new_session(rank, self._attempt or new_attempt())
        return _Files(self.store, f"{self._run_folder}{session}", self.compression)


class _Files:
    """The files of one session."""

    def __init__(self, store: Store, session: str, compression: str) -> None:
        self._store = store
        self._session = session
        self._compression = compression
        self._schema: pa.Schema | None = None
        self._sizes_bytes: dict[int, int] = {}  # of the blocks; each thread writes keys of its own

    def encode(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Returns one Parquet file."""
        import pyarrow as pa

        # All rows at once, since many small row groups are slow to read.

        table = pa.Table.from_batches(batches)
        self._schema = table.schema
        return self._encoded(table)

    def write(self, block_id: int, payload: bytes) -> None:
        """Writes a file. A repetition replaces it with equal content."""
        self._store.write(block_name(self._session, block_id), payload)
        self._sizes_bytes[block_id] = len(payload)

    def commit(self, block_ids: Sequence[int]) -> None:
        """Writes the file of the commit."""
        # It is a Parquet file without rows, since every reader of Parquet accepts that.
        if self._schema is not None:
            marker = self._encoded(self._schema.empty_table())
            name = commit_name(self._session, [self._sizes_bytes[block_id] for block_id in block_ids])
            self._store.write(name, marker)

    def _encoded(self, table: pa.Table) -> bytes:
        import pyarrow.parquet as pq

        with io.BytesIO() as file:
            pq.write_table(table, file, compression=self._compression)
            return file.getvalue()


def is_local(folder: str) -> Path | None:
    """Returns the path of a local folder; None for any other URI."""
    if folder.startswith("file:"):
        return Path(path_of_file_uri(folder))
    return Path(folder) if uri_scheme(folder) is None else None


def current_run_id() -> str:
    """Returns the id of the current job or run; a new one outside of them."""
    context = current_context()
    name = "" if context is None else context.job_id or (context.folder.name if context.folder else "")
    if is_run_id(name):
        return name
    return f"local-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def default_sink(run_id: str) -> ParquetSink:
    """Returns a sink for the run's folder: a job's output channel `trace`, or `model/trace` without one.

    Outside a job it is `trace` in the folder of the current `ReportSession`, or `runs/<run id>/trace` below the
    current folder without one. Raises TraceError in a job that has neither channel.
    """
    context = current_context()
    if context is None or context.folder is None:
        return ParquetSink(str(Path("runs", run_id, "trace").absolute()))
    if not context.job_id:
        return ParquetSink(RunLayout(str(context.folder)).trace)
    if output_folder := os.environ.get("PAI_OUTPUT_TRACE"):
        return ParquetSink(output_folder)
    if model := os.environ.get("PAI_OUTPUT_MODEL"):
        return ParquetSink(str(Path(model, "trace")))
    raise TraceError(
        "the job has no output channel for its trace; give it one, outputs={'trace': …}, or the writer a sink"
    )
