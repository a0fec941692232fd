"""Reads traces from Parquet: as tables of Arrow and pandas, and with SQL."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pai_sdk._core.extras import missing_extra
from pai_sdk._core.names.hints import name_hint, wrong_type
from pai_sdk._data.storage.store import open_store
from pai_sdk._data.trace.cells import CELL_ERRORS
from pai_sdk._data.trace.parquet import is_local
from pai_sdk._data.trace.trace_files import parse_attempt, parse_partitions, select_files
from pai_sdk._data.trace.unified import unified
from pai_sdk.errors import InvalidInputError, Problem, TraceError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from pai_sdk._data.storage.store import Store
    from pai_sdk._data.storage.stored_file import StoredFile

logger = logging.getLogger(__name__)

_READERS = 8
_MAX_CACHED_BYTES = 1 << 18
_Result = TypeVar("_Result")


def read_trace(folder: str | Path, session: Any = None, *, uncommitted: bool = False) -> TraceData:
    """Returns the trace in a folder that a `ParquetSink` has written: of one run, or of many.

    Args:
        folder: a local path or a URI.
        session: the session with the keys for `oss://`; the default session without it.
        uncommitted: read all existing blocks: also those of a running writer, those of a killed writer, and those
            of commits with missing blocks. A run that was killed and resumed then has some steps twice.

    Raises:
        TraceError: there is no trace.

    Example:
        >>> read_trace("/no/such/folder")
        Traceback (most recent call last):
            ...
        pai_sdk.errors.TraceError: /no/such/folder has no trace: there is no Parquet file in it
    """
    return trace_in(open_store(str(folder), session), str(folder), uncommitted=uncommitted)


def trace_in(store: Store, folder: str, *, uncommitted: bool = False) -> TraceData:
    """Returns the trace in a store, whose path or URI is `folder`; see `read_trace`."""
    files = select_files(store.list(), uncommitted=uncommitted)
    if files.incomplete:  # a slow listing can have a commit that was just written, and not its blocks
        files = select_files(store.list(), uncommitted=uncommitted)
    if not files.read:
        message = "there is no Parquet file in it"
        if files.uncommitted:
            message = (
                f"none of its blocks ({len(files.uncommitted)}) is committed; flush() and close() commit them, "
                "and uncommitted=True reads them as they are"
            )
        if files.incomplete:
            path, reason = next(iter(files.incomplete.items()))
            message = f"none of its commits is complete; {path}: {reason}"
        raise TraceError(f"{folder} has no trace: {message}")
    _log(folder, files.foreign | files.incomplete, logging.WARNING)
    _log(folder, files.uncommitted, logging.INFO)
    return TraceData(folder, store, files.read, files.unread)


class TraceData:
    """The rows of a trace. Partitions, such as the run's id, are columns.

    Files can have different columns: a row has null in a column that its file does not have. A column has the type
    that can store the values of all files: `bigint` for `int` and `bigint`, `double` for `bigint` and `double`.
        Only
    the parts of files that a query needs are read.

    Attributes:
        folder: the path or URI.
        left_out: path to reason, of Parquet files that are not read: files of no run, damaged files, and files of
            commits with missing blocks, which are logged as warnings; and uncommitted blocks of a writer that is
            running or was killed.
    """

    def __init__(
        self,
        folder: str,
        store: Store,
        files: Sequence[StoredFile],
        left_out: dict[str, str] | None = None,
        *,
        has_attempts: bool = False,
    ) -> None:
        self.folder = folder
        self.left_out = dict(left_out or {})
        self._store = store
        self._files = list(files)
        self._has_attempts = has_attempts
        root = is_local(folder)
        self._root = None if root is None else root.absolute()  # the program can change its working folder

    def __repr__(self) -> str:
        count = len(self._files)
        suffix = f", {len(self.left_out)} left out" if self.left_out else ""
        return f"<TraceData {self.folder} {count} file{'s' if count != 1 else ''}{suffix}>"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_dataset", "_fragments")}

    @property
    def paths(self) -> list[str]:
        """The paths of the files that are read."""
        return [file.path for file in self._files]

    @property
    def schema(self) -> pa.Schema:
        """The columns of all files.

        Raises:
            InvalidInputError: a column has incompatible types, such as `string` and `bigint`. All methods that
                read raise this error.
        """
        return self._dataset.schema

    def with_attempts(self) -> TraceData:
        """Returns the rows with two more columns: `_rank` of the writer, and `_attempt`, the time of its creation.

        A run that resumes from a checkpoint before its last commit has some steps twice; the attempt distinguishes
        them. Both columns are null in files of earlier versions.

        Example:
            >>> trace = read_trace("traces").with_attempts()  # doctest: +SKIP
            >>> trace.query(
            ...     "SELECT * FROM trace QUALIFY _attempt IS NOT DISTINCT FROM "
            ...     "max(_attempt) OVER (PARTITION BY run, _rank, step)"
            ... )  # doctest: +SKIP
        """
        return TraceData(self.folder, self._store, self._files, self.left_out, has_attempts=True)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns all rows.

        Args:
            columns: the columns to read, in this order; all by default.

        Raises:
            InvalidInputError: there is no such column, or a number of one file is not exact in the column's type.
        """
        self._check_columns(columns)
        return self._scanned(lambda: self._dataset.to_table(columns=None if columns is None else list(columns)))

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Returns all rows for pandas; arguments and errors as for `to_arrow`.

        Raises:
            TraceError: pandas cannot represent a value, such as a date after the year 9999.
        """
        import pyarrow as pa

        rows = self.to_arrow(columns)
        try:
            return rows.to_pandas()
        except (*CELL_ERRORS, NotImplementedError, pa.ArrowException) as error:
            text = f"{self.folder} has values that pandas cannot represent: {error}"
            raise TraceError(f"{text}; read the other columns, or use to_arrow()") from error

    def head(self, rows: int = 10) -> pa.Table:
        """Returns the first rows."""
        return self._scanned(lambda: self._dataset.head(rows))

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Returns the result of a DuckDB query of the table `trace`.

        SQL does not distinguish `Loss` of one run and `loss` of another one: they are one column.

        Raises:
            InvalidInputError: as for `schema`, or a file has two columns that differ only in case.
            MissingExtraError: DuckDB is not installed.
            TraceError: the query is wrong, or DuckDB does not have the type of a column; the message contains that
                of DuckDB. The rows are computed when the result is read, which raises `duckdb.Error` for values
                that DuckDB cannot represent.
        """
        try:
            import duckdb
        except ImportError as error:
            raise missing_extra("queries need duckdb", "odps") from error
        parts = self._parts_for_sql()
        connection = duckdb.connect()
        try:
            for name, part in parts.items():
                connection.register(name, part)
            if "trace" not in parts:
                rows = " UNION ALL BY NAME ".join(f"FROM {name}" for name in parts)
                connection.execute(f"CREATE VIEW trace AS {rows}")
            return connection.sql(sql)
        except duckdb.Error as error:
            raise TraceError(f"the query failed: {error}") from error

    def rows_of(self, sql: str, most: int, *, offset: int = 0) -> pa.Table:
        """Returns some rows of a query's result; errors as for `query`.

        Args:
            sql: the query.
            most: the maximum number of rows.
            offset: the number of rows to skip.
        """
        import duckdb
        import pyarrow as pa

        relation = self.query(sql)
        if relation is None:  # a statement without rows
            return pa.table({})
        try:
            return relation.limit(most, offset).to_arrow_table()
        except (duckdb.Error, pa.ArrowException) as error:
            raise TraceError(f"the query failed: {error}") from error

    def _check_columns(self, columns: Sequence[str] | None) -> None:
        if isinstance(columns, str):
            raise InvalidInputError([wrong_type("columns", columns, "a list of names")])
        names = self.schema.names
        problems = [
            Problem(f"column {name!r}", "is not in the trace", name_hint(name, names))
            for name in columns or ()
            if name not in names
        ]
        if problems:
            raise InvalidInputError(problems)

    @cached_property
    def _dataset(self) -> Any:
        """Returns the files with their common schema. Arrow converts each file's columns when it reads them."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        fragments = self._fragments
        schemas = [(path, fragment.physical_schema) for path, fragment in fragments.items()]
        folders = [
            (path, pa.schema([(name, value.type) for name, value in self._path_columns(path).items()]))
            for path in fragments
        ]
        schema = unified([*schemas, *folders])
        return ds.FileSystemDataset(list(fragments.values()), schema, ds.ParquetFileFormat())

    def _parts_for_sql(self) -> dict[str, Any]:
        """Returns data sets by table name: `trace`, or one for each spelling of names that differ in case."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        schema = self.schema
        lower = Counter(map(str.lower, schema.names))
        clashing = {name for name in schema.names if lower[name.lower()] > 1}
        if not clashing:
            return {"trace": self._dataset}
        types = unified(
            (f"{name!r}", pa.schema([(name.lower(), schema.field(name).type)])) for name in schema.names
        )
        groups: dict[frozenset[str], list[Any]] = {}
        for path, fragment in self._fragments.items():
            names = frozenset(clashing & {*fragment.physical_schema.names, *self._path_columns(path)})
            if len({*map(str.lower, names)}) < len(names):
                text = "differ only in case, which SQL does not distinguish"
                problem = Problem(f"columns {sorted(names)} of {path}", text, "use to_arrow() or to_pandas()")
                raise InvalidInputError([problem])
            groups.setdefault(names, []).append(fragment)
        return {
            f"trace_{number}": ds.FileSystemDataset(
                fragments,
                pa.schema(
                    [
                        (name, types.field(name.lower()).type)
                        for name in schema.names
                        if name in names or name not in clashing
                    ]
                ),
                ds.ParquetFileFormat(),
            )
            for number, (names, fragments) in enumerate(groups.items())
        }

    @cached_property
    def _fragments(self) -> dict[str, Any]:
        """Opens the files, and leaves out damaged ones. The footers stay in memory for queries."""
        with ThreadPoolExecutor(_READERS, thread_name_prefix="trace-reader") as pool:
            opened = dict(zip(self.paths, pool.map(self._fragment, self._files), strict=True))
        damaged = {path: reason for path, reason in opened.items() if isinstance(reason, str)}
        _log(self.folder, damaged, logging.WARNING)
        self.left_out.update(damaged)
        self._files = [file for file in self._files if file.path not in damaged]
        if not self._files:
            path, reason = next(iter(damaged.items()))
            raise TraceError(f"{self.folder} has no trace that can be read; {path}: {reason}")
        return {file.path: opened[file.path] for file in self._files}

    def _fragment(self, file: StoredFile) -> Any:
        """Returns the file, or the reason why it cannot be read."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        expression = ds.scalar(True)
        for name, value in self._path_columns(file.path).items():
            if value.is_valid:  # a column that a file does not have is null
                expression &= ds.field(name) == value
        try:
            fragment = ds.ParquetFileFormat().make_fragment(*self._source(file), partition_expression=expression)
            fragment.ensure_complete_metadata()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            return f"it is not a Parquet file, or is damaged: {error}"
        except OSError as error:
            if error.errno is not None:
                raise TraceError(f"{self.folder}: {file.path} cannot be read: {error}") from error
            return f"it is damaged: {error}"  # Arrow's error without errno, for a footer that cannot be decoded
        return fragment

    def _source(self, file: StoredFile) -> tuple[Any, ...]:
        import pyarrow as pa
        import pyarrow.fs

        if self._root is None:
            return (pa.PythonFile(_RangedFile(self._store, file), mode="r"),)
        return str(self._root / file.path), pyarrow.fs.LocalFileSystem()

    def _path_columns(self, path: str) -> dict[str, Any]:
        """Returns the columns that are in the path of a file."""
        import pyarrow as pa

        columns = {name: pa.scalar(value, pa.string()) for name, value in parse_partitions(path).items()}
        if self._has_attempts:
            rank, attempt = parse_attempt(path)
            columns |= {"_rank": pa.scalar(rank, pa.int32()), "_attempt": pa.scalar(attempt, pa.string())}
        return columns

    def _scanned(self, scan: Callable[[], _Result]) -> _Result:
        import pyarrow as pa

        try:
            return scan()
        except (pa.ArrowException, OSError) as error:
            self._raise_cause()
            raise TraceError(f"{self.folder} cannot be read: {error}") from error

    def _raise_cause(self) -> None:
        """Raises an error with file and column, which Arrow's message does not contain."""
        import pyarrow as pa

        problems = []
        for path, fragment in self._fragments.items():
            for field in fragment.physical_schema:
                type_ = self.schema.field(field.name).type
                try:
                    fragment.to_table(schema=pa.schema([(field.name, type_)]))
                except (pa.ArrowException, OSError) as error:
                    if type_.equals(field.type):
                        raise TraceError(f"{self.folder}: {path} cannot be read: {error}") from error
                    message = (
                        f"in {path} it is {field.type}, and one of its values does not become {type_}: {error}"
                    )
                    problems.append(Problem(f"column {field.name!r}", message, "read the other columns"))
        if problems:
            raise InvalidInputError(problems)


class _RangedFile(io.RawIOBase):
    """A file of a store, for Arrow: reads only the requested parts."""

    def __init__(self, store: Store, file: StoredFile) -> None:
        super().__init__()
        self._store = store
        self._file = file
        self._position = 0
        self._last: tuple[int, bytes] = 0, b""  # Arrow reads the end first, which is all of a small file

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets and returns the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Returns the next bytes."""
        start = self._position
        end = self._file.size_bytes if size is None or size < 0 else min(start + size, self._file.size_bytes)
        if end <= start:
            return b""
        first, content = self._last
        if not first <= start <= end <= first + len(content):
            first, content = start, b"".join(self._store.read(self._file.path, start, end))
            self._last = (first, content) if len(content) <= _MAX_CACHED_BYTES else (0, b"")
        self._position = end
        return content[start - first : end - first]


def _log(folder: str, skipped: dict[str, str], level: int) -> None:
    """Logs one line for each reason."""
    for reason in sorted(set(skipped.values())):
        paths = [path for path, cause in skipped.items() if cause == reason]
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        logger.log(level, "%s: %s%s: not read, because %s", folder, paths[0], more, reason)
