"""Traces into tables of MaxCompute (ODPS), through the client library pyodps.

pyodps signs requests, locates the tunnel and creates tables. The calls of an upload session are implemented here,
one request each, because a retry must send the same block, and must check first whether the last attempt has
stored it.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pai_sdk._core.config.credentials import (
    Credentials,
    CredentialsProvider,
    default_credentials,
    static_credentials,
)
from pai_sdk._core.extras import missing_extra
from pai_sdk._data.trace.frames import framed_content
from pai_sdk._data.trace.types import column_type, numpy_type, parse_type, type_text
from pai_sdk.errors import InvalidInputError, Problem, TraceError

if TYPE_CHECKING:
    import pyarrow as pa
    import requests
    from odps import ODPS

_HEADERS = {
    "odps-tunnel-date-transform": "v1",
    "odps-tunnel-sdk-support-schema-evolution": "true",
    "x-odps-tunnel-version": "6",
}
_COMPRESSIONS = ("zstd", "deflate", "none")
_TIMEOUTS_S = (10.0, 120.0)  # to connect, and between two bytes of the response
_RETRIED_STATUS = (308, 408, 429)
_RETRIED_CODES = (
    "FlowExceeded",
    "InternalServerError",
    "ServiceUnavailable",
    "RequestTimeout",
    "MetaTransactionFailed",
)
_MIB = 1 << 20
_MESSAGE_BYTES = _MIB


class OdpsSink:
    """Writes a trace into a table of MaxCompute.

    The table and the partition are created when they are missing. All rows of a session become visible together.
    The limits of MaxCompute are respected: a session is renewed before 24 hours and before 20,000 blocks.

    Args:
        table: the name of the table.
        project: of MaxCompute.
        endpoint: of MaxCompute's REST API.
        partition: such as `dt=20261122` or `dt=20261122,rank=0`; None for a table without partitions.
        credentials: the access key, or a function that returns it; by default as for all of pai_sdk.
        lifecycle: days for which a new table retains its rows.
        compression: of the requests: `zstd`, `deflate` or `none`.
        run_column: the column that gets the run's id; None for none.
        tunnel_endpoint: of the tunnel; by default, MaxCompute returns it.
        region: sign with V4 for this region.
        quota: the tunnel's quota.

    Raises:
        InvalidInputError: an argument is missing or malformed.
        MissingExtraError: pyodps is not installed.

    Example:
        >>> OdpsSink("clicks", project="shop", endpoint="http://service.cn.maxcompute.aliyun.com/api")
        OdpsSink('shop.clicks')
    """

    # Half of MaxCompute's limits, 20,000 blocks and 24 hours.
    max_blocks = 10_000
    max_age_s = 12 * 3600.0

    def __init__(
        self,
        table: str,
        *,
        project: str,
        endpoint: str,
        partition: str | None = None,
        credentials: Credentials | CredentialsProvider | None = None,
        lifecycle: int | None = 365,
        compression: str = "zstd",
        run_column: str | None = "run_id",
        tunnel_endpoint: str | None = None,
        region: str | None = None,
        quota: str | None = None,
    ) -> None:
        required = {"table": table, "project": project, "endpoint": endpoint}
        problems = [Problem(name, "is required") for name, value in required.items() if not value]
        if compression not in _COMPRESSIONS:
            problems.append(Problem("compression", f"{compression!r} is not supported", ", ".join(_COMPRESSIONS)))
        try:
            self.partition = _pairs(partition)
        except ValueError as error:
            problems.append(Problem("partition", str(error), "such as dt=20261122,rank=0"))
        if problems:
            raise InvalidInputError(problems)
        self.table = table
        self.project = project
        self._endpoint = endpoint
        self._credentials = static_credentials(*credentials[:3]) if isinstance(credentials, tuple) else credentials
        self._key = credentials if isinstance(credentials, tuple) else None
        self._lifecycle = lifecycle
        self._compression = compression
        self._run_column = run_column
        self._tunnel_endpoint = tunnel_endpoint
        self._region = region
        self._quota = quota
        self._schema: pa.Schema | None = None
        self._connecting = threading.Lock()
        self._connected: tuple[Any, _Connection] | None = None  # the schema, and its connection
        _odps_module()

    def __repr__(self) -> str:
        partition = "".join(f"/{name}={value}" for name, value in self.partition.items())
        return f"OdpsSink({f'{self.project}.{self.table}{partition}'!r})"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self), _connected=None, _connecting=None)  # connections and locks cannot be pickled
        if self._key is not None:
            state["_credentials"] = None  # a function, which __setstate__ creates again from the key
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._connecting = threading.Lock()
        if self._key is not None:
            self._credentials = static_credentials(*self._key[:3])

    def prepare(self, schema: pa.Schema, run_id: str) -> pa.Schema:
        """Returns the schema with the column for the run's id.

        Raises:
            InvalidInputError: MaxCompute has no such type, or a column is a partition, too.
        """
        import pyarrow as pa

        problems = []
        for field in schema:
            try:
                type_text(field.type)
            except ValueError as error:
                problems.append(Problem(f"column {field.name!r}", str(error)))
        clash = {name.lower() for name in schema.names} & {name.lower() for name in self.partition}
        problems += [
            Problem(f"column {name!r}", "is also a partition", "rename the column") for name in sorted(clash)
        ]
        if problems:
            raise InvalidInputError(problems)
        if self._run_column is not None and self._run_column.lower() not in map(str.lower, schema.names):
            schema = schema.append(pa.field(self._run_column, pa.string()))
        # Without the lock, which a running check holds during its requests. The assignment is atomic, and
        # `_connection` connects again for another schema.
        self._schema = schema
        return schema

    def check(self) -> None:
        """Creates a missing table, and compares the columns.

        Raises:
            TraceError: the table does not have these columns with these types, or MaxCompute refuses.
        """
        self._connection()

    def open(self) -> _Session:
        """Starts an upload session; errors as for `check`."""
        return _Session(self._connection(), compression=self._compression)

    def _connection(self) -> _Connection:
        """Returns the connection for the columns of the last writer; connects at the first use."""
        # Held during the requests: the writer's threads that open sessions at once wait for one connection.
        with self._connecting:
            schema = self._schema
            if self._connected is None or schema is None or not self._connected[0].equals(schema):
                self._connected = schema, self._connect(schema)
            return self._connected[1]

    def _connect(self, schema: pa.Schema | None) -> _Connection:
        if schema is None:
            raise TraceError(f"{self!r}: prepare() must be called before open()")
        provider = self._credentials or default_credentials()
        key = provider()
        with _as_trace_errors(repr(self)):
            client = self._client(key)
            columns = self._create_table(client, schema)
            endpoint = self._tunnel_client(client).endpoint
        query = {"curr_project": self.project}
        if self.partition:
            query["partition"] = ",".join(f"{name}={value}" for name, value in self.partition.items())
        if self._quota:
            query["quotaName"] = self._quota
        url = f"{endpoint}/projects/{self.project}/tables/{self.table}"
        # The signer gets the provider, not the key: a session can live longer than a temporary key.
        signer = _Signer(provider, lambda key: self._tunnel_client(self._client(key)))
        return _Connection(signer, url, query, _blocks_schema(schema, columns, repr(self)), repr(self))

    def _tunnel_client(self, client: ODPS) -> Any:
        # Without pyodps' retries: the writer retries each call, and the attempts would multiply.
        tunnel = _odps_module().tunnel.TableTunnel(client, quota_name=self._quota).tunnel_rest
        return tunnel.with_retry_enabled(False) if hasattr(tunnel, "with_retry_enabled") else tunnel

    def _client(self, key: Credentials) -> ODPS:
        return pyodps_client(
            key, self.project, self._endpoint, tunnel_endpoint=self._tunnel_endpoint, region_name=self._region
        )

    def _create_table(self, client: ODPS, columns: pa.Schema) -> Mapping[str, str]:
        """Creates a missing table and partition; returns name to type of the table's columns."""
        from odps.models import TableSchema

        types = [column_type(field) for field in columns]
        partitions = list(self.partition)
        schema = TableSchema.from_lists(
            columns.names, types, partitions or None, ["string"] * len(partitions) or None
        )
        # All ranks of a job do this at once, so an existing table is no error.
        table = client.create_table(
            self.table,
            schema,
            if_not_exists=True,
            lifecycle=self._lifecycle,
            hints={"odps.sql.type.system.odps2": "true"},  # for types such as timestamp
            table_properties={"columnar.nested.type": "true"},
        )
        if partitions:
            spec = ",".join(f"{name}='{value}'" for name, value in self.partition.items())
            table.create_partition(spec, if_not_exists=True)
        # An existing table can have other columns than these.
        stored_table = client.get_table(self.table)
        stored_table.reload()
        return {column.name: str(column.type) for column in stored_table.table_schema.simple_columns}


def pyodps_client(key: Credentials, project: str, endpoint: str, **options: Any) -> ODPS:
    """Returns a client of pyodps with a key, which can be temporary; raises MissingExtraError."""
    odps = _odps_module()
    if key.security_token:
        account = odps.accounts.StsAccount(key.access_key_id, key.access_key_secret, key.security_token)
        return odps.ODPS(None, None, project=project, endpoint=endpoint, account=account, **options)
    return odps.ODPS(key.access_key_id, key.access_key_secret, project=project, endpoint=endpoint, **options)


class _Signer:
    """Returns pyodps' client for the current key, since temporary keys are renewed while a training runs."""

    def __init__(self, provider: CredentialsProvider, create_client: Callable[[Credentials], Any]) -> None:
        self._provider = provider
        self._create_client = create_client
        self._lock = threading.Lock()
        self._cached: tuple[Credentials, Any] | None = None

    def client(self) -> Any:
        key = self._provider()  # without the lock: it can send a request
        with self._lock:
            if self._cached is None or self._cached[0] != key:
                self._cached = key, self._create_client(key)
            return self._cached[1]


class _Connection:
    """The requests of upload sessions of one table or partition. Safe to use from several threads."""

    def __init__(self, signer: _Signer, url: str, query: Mapping[str, str], schema: pa.Schema, sink: str) -> None:
        self._signer = signer
        self._url = url
        self._query = dict(query)
        self.schema = schema  # the columns in the order of the table
        self.sink = sink  # the name of the sink in messages

    def call(
        self, method: str, query: Mapping[str, str], body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> requests.Response:
        """Sends one request; a TraceError has `retryable` where a retry can succeed."""
        with _as_trace_errors(self.sink):
            response: requests.Response = self._signer.client().request(
                self._url,
                method,
                params={**self._query, **query},
                data=body,
                headers={**_HEADERS, **(headers or {})},
                timeout=_TIMEOUTS_S,
            )
        # A gateway can respond with 200 to a request that it did not forward.
        if "x-odps-request-id" not in response.headers:
            raise TraceError(f"{self.sink}: the response has no request id of MaxCompute", retryable=True)
        return response

    def session_info(self, method: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Sends one request for a session; returns the JSON of the response."""
        response = self.call(method, query)
        try:
            info = json.loads(response.content)
        except ValueError:
            info = None
        if not isinstance(info, dict) or "UploadID" not in info:
            raise TraceError(f"{self.sink}: the response is not one of MaxCompute's tunnel", retryable=True)
        return info


class _Session:
    """One upload session. Several threads write its blocks."""

    def __init__(self, connection: _Connection, *, compression: str) -> None:
        self._connection = connection
        self._compression = compression
        self._upload_id = connection.session_info("post", {"uploads": "1"})["UploadID"]
        self._lock = threading.Lock()
        self._tried: set[int] = set()  # blocks for which a request was sent; guarded by `_lock`
        self._is_commit_tried = False

    def encode(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Returns a block in the tunnel's format: columns in the table's order and types; framed; compressed."""
        messages = chain.from_iterable(_messages(rows) for rows in map(self._as_in_table, batches))
        return _compressed(framed_content(messages), self._compression)

    def _as_in_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = []
        if unknown := {*batch.schema.names} - {*self._connection.schema.names}:
            text = f"{self._connection.sink} is used by another writer with other columns; create a sink for each"
            raise TraceError(f"{text} (columns: {', '.join(sorted(unknown))})")
        for field in self._connection.schema:
            position = batch.schema.get_field_index(field.name)
            column = pa.nulls(batch.num_rows, field.type) if position < 0 else batch.column(position)
            arrays.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._connection.schema)

    def write(self, block_id: int, payload: bytes) -> None:
        """Sends a block, unless an earlier request has stored it and only its response was lost."""
        # The lock is not held during the requests. No two threads write the same block, so the entry of this block
        # cannot change meanwhile.
        with self._lock:
            is_repeated = block_id in self._tried
            self._tried.add(block_id)  # before the request, whose response can be lost
        if is_repeated and block_id in self._stored():  # one more request, for retries only
            return
        headers = {"Content-Type": "application/octet-stream"}
        if self._compression != "none":
            headers["Content-Encoding"] = self._compression
        query = {"uploadid": self._upload_id, "blockid": str(block_id), "arrow": ""}
        self._connection.call("put", query, payload, headers)

    def commit(self, block_ids: Sequence[int]) -> None:
        """Commits these blocks, unless an earlier request has done so."""
        info = self._info()
        if self._is_commit_tried and _status(info) in ("closed", "closing"):
            return
        # The commit makes all blocks of the session visible: a missing block would be lost, and rows of an
        # unexpected one would be added.
        stored = _block_ids(info)
        if stored != set(block_ids):
            missing, more = sorted(set(block_ids) - stored)[:5], sorted(stored - set(block_ids))[:5]
            raise TraceError(
                f"{self._connection.sink}: the blocks of upload {self._upload_id} do not match "
                f"(missing: {missing}, unexpected: {more}); it was not committed"
            )
        self._is_commit_tried = True  # before the request, whose response can be lost
        info = self._connection.session_info("post", {"uploadid": self._upload_id})
        if _status(info) not in ("closed", "closing"):  # a retry checks the status first
            raise TraceError(f"{self._connection.sink}: the commit is not done yet", retryable=True)

    def _stored(self) -> set[int]:
        return _block_ids(self._info())

    def _info(self) -> dict[str, Any]:
        return self._connection.session_info("get", {"uploadid": self._upload_id, "reload": "True"})


def _messages(rows: pa.RecordBatch) -> Iterator[memoryview]:
    """Yields the rows as messages of about 4 MiB, so that no second copy of all rows is in memory."""
    step = max(1, rows.num_rows * _MESSAGE_BYTES // max(1, rows.nbytes))
    for start in range(0, max(1, rows.num_rows), step):
        yield memoryview(rows.slice(start, step).serialize())


class _UnclosedBytesIO(io.BytesIO):
    """Stays open when Arrow closes it, so that its content can be read."""

    def close(self) -> None:
        """Does nothing."""


def _compressed(parts: Iterable[bytes | memoryview], compression: str) -> bytes:
    """Compresses a content part by part."""
    out = _UnclosedBytesIO()  # joining a list would copy a complete block under the GIL, which delays a step
    if compression == "zstd":
        import pyarrow as pa

        with pa.CompressedOutputStream(pa.PythonFile(out, "w"), "zstd") as stream:
            for part in parts:
                stream.write(part)
        return out.getvalue()
    if compression == "deflate":
        import zlib

        packer = zlib.compressobj(1)
        for part in parts:
            out.write(packer.compress(part))
        out.write(packer.flush())
        return out.getvalue()
    for part in parts:
        out.write(part)
    return out.getvalue()


def _status(info: Mapping[str, Any]) -> str:
    return str(info.get("Status", "")).lower()


def _block_ids(info: Mapping[str, Any]) -> set[int]:
    return {int(block["BlockID"]) for block in info.get("UploadedBlockList") or ()}


def _blocks_schema(traced: pa.Schema, columns: Mapping[str, str], sink: str) -> pa.Schema:
    """Returns the schema of the table's blocks; raises TraceError for columns that the table cannot store."""
    import pyarrow as pa

    in_table = {name.lower() for name in columns}  # MaxCompute stores lower case, and ignores case
    unknown = [name for name in traced.names if name.lower() not in in_table]
    if unknown:
        column_names = ", ".join(columns)
        raise TraceError(f"{sink} has no column {', '.join(map(repr, unknown))}; it has: {column_names}")
    traced_names = {name.lower(): name for name in traced.names}
    fields, wrong = [], []
    for name, text in columns.items():
        try:
            type_ = parse_type(text)
        except ValueError as error:
            raise TraceError(f"{sink}: column {name!r}: {error}") from error
        traced_name = traced_names.get(name.lower())
        fields.append(
            pa.field(
                traced_name or name,
                type_ if traced_name is None else _with_names(type_, traced.field(traced_name).type),
            )
        )
        if traced_name is not None and not _stores(type_, traced_type := traced.field(traced_name).type):
            wrong.append(f"column {name!r} is {type_text(type_)}, and {type_text(traced_type)} in the trace")
    if wrong:
        raise TraceError(f"{sink}: {'; '.join(wrong)}. Give the writer the types of the table")
    return pa.schema(fields)


def _with_names(table: pa.DataType, traced: pa.DataType) -> pa.DataType:
    """Returns the table's type with the names that the trace has for fields of structs; Arrow matches by name."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_list(table) and (kinds.is_list(traced) or kinds.is_large_list(traced)):
        return pa.list_(pa.field("element", _with_names(table.value_type, traced.value_type)))
    if kinds.is_map(table) and kinds.is_map(traced):
        key, item = _with_names(table.key_type, traced.key_type), _with_names(table.item_type, traced.item_type)
        return pa.map_(key, item)
    if kinds.is_struct(table) and kinds.is_struct(traced) and len(table) == len(traced):
        return pa.struct(
            [
                (traced_field.name, _with_names(field.type, traced_field.type))
                for field, traced_field in zip(table, traced, strict=True)
            ]
        )
    return table


def _stores(table: pa.DataType, traced: pa.DataType) -> bool:
    """Returns True if a column of the table can store all values of a type."""
    import numpy as np
    import pyarrow.types as kinds

    if type_text(table).lower() == type_text(traced).lower():
        return True
    traced_dtype, table_dtype = numpy_type(traced), numpy_type(table)
    if traced_dtype is not None and table_dtype is not None:
        # np.can_cast accepts bigint to double, which is not exact
        is_exact = traced_dtype.kind == table_dtype.kind or traced_dtype.itemsize < table_dtype.itemsize
        return is_exact and np.can_cast(traced_dtype, table_dtype, "safe")
    if kinds.is_list(table) and (kinds.is_list(traced) or kinds.is_large_list(traced)):
        return _stores(table.value_type, traced.value_type)
    if kinds.is_decimal(table) and kinds.is_decimal(traced):
        digits = table.precision - table.scale, traced.precision - traced.scale
        return bool(table.scale >= traced.scale and digits[0] >= digits[1])
    return bool(kinds.is_timestamp(table) and kinds.is_timestamp(traced) and table.unit == "ns")


@contextlib.contextmanager
def _as_trace_errors(sink: str) -> Iterator[None]:
    """Converts errors of pyodps and requests to TraceError, with `retryable`."""
    import requests
    from odps.errors import BaseODPSError

    try:
        yield
    except BaseODPSError as error:
        status, code = getattr(error, "status_code", None) or 0, str(getattr(error, "code", "") or "")
        retryable = (
            status >= 500 or status in _RETRIED_STATUS or code in _RETRIED_CODES or isinstance(error, IOError)
        )
        raise TraceError(f"{sink}: {error}", retryable=retryable) from error
    except (requests.RequestException, OSError) as error:
        raise TraceError(f"{sink}: no response: {error}", retryable=True) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:  # pyodps fails to decode the page of a gateway
        raise TraceError(f"{sink}: the response is not MaxCompute's", retryable=True) from error


def _pairs(partition: str | None) -> dict[str, str]:
    """Returns the pairs of `dt=1,rank=0`; `/` separates as well. Raises ValueError for other strings."""
    if partition is None:
        return {}
    pairs = {}
    for part in partition.replace("/", ",").split(","):
        name, sign, value = (text.strip() for text in part.partition("="))
        value = value.strip("'\"")
        if not (name.isidentifier() and sign and value):
            raise ValueError(f"{part!r} is not a pair of a column and its value")
        pairs[name] = value
    return pairs


def _odps_module() -> Any:
    try:
        import odps
        import odps.accounts
        import odps.tunnel
    except ImportError as error:
        raise missing_extra("tables of MaxCompute need pyodps", "odps") from error
    return odps


SELF_HOSTED_PROJECT = "pai"
"""The default project of tables in a self-hosted service."""

_CLOUD = ".aliyuncs.com"


class SessionTables:
    """Tables with the endpoint and the keys of a session; `session.tables` returns it."""

    def __init__(self, endpoint: str, region_id: str | None, credentials: CredentialsProvider) -> None:
        self._is_self_hosted = not (urlsplit(endpoint).hostname or "").endswith(_CLOUD)
        self.endpoint = (
            endpoint if self._is_self_hosted else f"https://service.{region_id}.maxcompute.aliyun.com/api"
        )
        self._credentials = credentials

    def __repr__(self) -> str:
        return f"<SessionTables {self.endpoint}>"

    def sink(self, table: str, *, project: str | None = None, **options: Any) -> OdpsSink:
        """Returns a sink with which a `TraceWriter` writes to a table.

        Args:
            table: the name of the table.
            project: of MaxCompute; `pai` in a service of your own.
            options: as for `OdpsSink`.

        Raises:
            InvalidInputError: the project is missing, or an option is wrong.
        """
        options = {"credentials": self._credentials, **self._tunnel(), **options}
        return OdpsSink(table, project=self._project(project), endpoint=self.endpoint, **options)

    def client(self, *, project: str | None = None) -> ODPS:
        """Returns a client of pyodps, to read, create, list and drop tables.

        Args:
            project: of MaxCompute; `pai` in a service of your own.

        Raises:
            InvalidInputError: the project is missing.
            MissingExtraError: pyodps is not installed.
        """
        key = self._credentials()
        return pyodps_client(key, self._project(project), self.endpoint, **self._tunnel())

    def _project(self, project: str | None) -> str:
        if project or self._is_self_hosted:
            return project or SELF_HOSTED_PROJECT
        raise InvalidInputError([Problem("project", "is required", "name the project of MaxCompute")])

    def _tunnel(self) -> dict[str, str]:
        # Explicit, since pyodps caches the tunnel of an endpoint for the lifetime of the process.
        return {"tunnel_endpoint": self.endpoint} if self._is_self_hosted else {}
