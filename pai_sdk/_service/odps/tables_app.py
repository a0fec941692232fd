"""MaxCompute's protocol for tables: the REST API and the tunnel of pyodps, as an ASGI application.

Recorded from pyodps 0.13. It implements what traces and their readers use: tables and partitions, upload sessions
with blocks of Arrow or records, download sessions. It runs no SQL queries; use DuckDB on the Parquet files for
those.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from email.utils import formatdate
from typing import Any, BinaryIO, TypeVar
from urllib.parse import parse_qsl, quote, unquote
from xml.parsers import expat

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pai_sdk._service.identity.rate import KeyRates
from pai_sdk._service.odps.memory_budget import MemoryBudget
from pai_sdk._service.odps.odps_signature import OdpsVerifier, SecretOf
from pai_sdk._service.odps.statements import Statement, read_partition, read_statement
from pai_sdk._service.odps.table_errors import TableError
from pai_sdk._service.odps.table_rights import ALL_TABLES, TableRights
from pai_sdk._service.odps.table_rows import ROWS_BUDGET_BYTES, encoded_rows, encoding_for, read_block
from pai_sdk._service.odps.table_store import DownloadSession, Table, TableStore, UploadSession
from pai_sdk._service.oss.xml import document, printable

logger = logging.getLogger(__name__)

_MAX_BLOCK_BYTES = 1 << 30
_MAX_STATEMENT_BODY_BYTES = 4 << 20  # a statement of up to 2 MiB, followed by settings
_MAX_ELEMENTS = 1000
_MAX_INSTANCES = 1000
_BODY_CHUNK_BYTES = 1 << 20
_WORKERS = 4  # threads that read and write rows; each uses some MiB besides the memory of the budget
_MAX_QUEUE_S = 60.0
_T = TypeVar("_T")
_NUMBER = re.compile(r"[0-9]{1,18}")
_ROW_RANGE = re.compile(r"\(? *([0-9]{1,18}) *, *([0-9]{1,18}) *\)?")


class TablesApp:
    """ASGI application that serves signed requests."""

    def __init__(
        self,
        store: TableStore,
        keys: SecretOf,
        *,
        rights_of: Callable[[str], TableRights] = lambda key_id: ALL_TABLES,
        rates: KeyRates | None = None,
        max_block_bytes: int = _MAX_BLOCK_BYTES,
        budget: MemoryBudget | None = None,
    ) -> None:
        self._store = store
        self._verifier = OdpsVerifier(keys)
        self._rights_of = rights_of
        self._rates = rates or KeyRates(None)
        self._max_block_bytes = max_block_bytes
        self._budget = budget or MemoryBudget(ROWS_BUDGET_BYTES)
        self._workers = _Workers()
        self._instances = _Instances()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        request_id = uuid.uuid4().hex
        try:
            response = await self._respond(Request(scope, receive))
        except TableError as error:
            response = _error_response(error, request_id)
        except ClientDisconnect:
            response = _error_response(TableError(400, "IncompleteBody", "The body is incomplete."), request_id)
        except Exception:
            logger.exception("request %s %s %s failed unexpectedly", request_id, scope["method"], scope["path"])
            response = _error_response(
                TableError(
                    500, "InternalServerError", "The service failed unexpectedly; its log has the details."
                ),
                request_id,
            )
        response.headers["x-odps-request-id"] = request_id
        response.headers["date"] = formatdate(usegmt=True)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        scope = request.scope
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        headers = {name.lower(): value for name, value in request.headers.items()}
        path = unquote(scope["raw_path"].decode("latin-1").partition("?")[0])
        # In a thread: looking up the secret of a key may read the database.
        key_id = await _in_thread(self._verifier.check, request.method, path, query, headers)
        # After the signature: unsigned requests must not count for the rate limit of the key.
        if self._rates.acquire(key_id):
            raise TableError(429, "FlowExceeded", "The access key makes more requests than this service allows.")
        call = _Call(request, path, dict(query), await _in_thread(self._rights_of, key_id))
        handler = self._handler(call)
        return await handler(call)

    def _handler(self, call: _Call) -> Callable[[_Call], Awaitable[Response]]:
        parts, query, method = call.parts, call.query, call.request.method
        if parts[:1] != ["projects"] or len(parts) < 2:
            raise TableError(404, "NoSuchObject", f"This service has no {call.path}.")
        match method, parts[2:]:
            case "GET", []:
                return self._project
            case "GET", ["tunnel"] if "service" in query:
                # pyodps requests the host of the tunnel, which is this service itself.
                return self._tunnel
            case "POST", ["instances"]:
                return self._run_statement
            case "GET", ["instances", _]:
                return self._instance
            case "GET", ["tables"]:
                return self._tables
            case _, ["tables", _] | ["schemas", "default", "tables", _]:
                if handler := self._table_handler(call):
                    return handler
        raise TableError(404, "NoSuchObject", f"This service has no {method} {call.path}.")

    def _table_handler(self, call: _Call) -> Callable[[_Call], Awaitable[Response]] | None:
        query, method = call.query, call.request.method
        if "uploads" in query or "uploadid" in query:
            return self._upload_handler(call)
        if ("downloads" in query or "downloadid" in query) and method in ("GET", "POST"):
            return self._start_download if "data" not in query else self._data
        if method != "GET":
            return None
        if "partitions" in query:
            return self._partitions
        if "partition" in query:
            return self._partition
        return None if {"streams", "upserts"} & set(query) else self._table

    def _upload_handler(self, call: _Call) -> Callable[[_Call], Awaitable[Response]]:
        match call.request.method, "uploadid" in call.query:
            case "POST", False:
                return self._start_upload
            case "GET", True:
                return self._upload
            case "PUT", True:
                return self._put_block
            case "POST", True:
                return self._commit
        raise TableError(405, "MethodNotAllowed", "Uploads do not support this method.")

    # ---- the REST calls

    async def _project(self, call: _Call) -> Response:
        return _xml(document("Project", [("Name", call.project), ("State", "AVAILABLE")]))

    async def _tunnel(self, call: _Call) -> Response:
        return Response(call.request.headers.get("host", ""), media_type="text/plain")

    async def _run_statement(self, call: _Call) -> Response:
        body = await _body(call.request, _MAX_STATEMENT_BODY_BYTES)
        statement = await _in_thread(lambda: read_statement(_query_of(body)))
        problem = ""
        try:
            await _in_thread(self._run, call, statement)
        # As in MaxCompute, a statement that fails is an instance that has failed; only a refusal is an error here.
        except TableError as error:
            if error.status_code == 403:
                raise
            problem = f"{error.code}: {error.message}"
        host = call.request.headers.get("host", "")
        path = f"/projects/{quote(call.project)}/instances/{self._instances.add(problem)}"
        return Response(status_code=201, headers={"Location": f"{call.request.scope['scheme']}://{host}{path}"})

    def _run(self, call: _Call, statement: Statement) -> None:
        project = statement.project or call.project
        if statement.kind == "create":
            call.rights.check_create(project, statement.table)
            done = self._store.create(project, statement, owner=call.rights.owner)
            problem = f"Table already exists - {project}.{statement.table}"
        elif statement.kind == "drop":
            is_owned = call.rights.check_drop(project, statement.table)
            done = is_owned and self._store.drop(project, statement.table)
            problem = f"Table not found - {project}.{statement.table}"
        else:
            call.rights.check(project, statement.table, statement.partition, writes=True)
            table = self._store.table(project, statement.table)
            change = self._store.add_partition if statement.kind == "add" else self._store.remove_partition
            done = change(table, statement.partition)
            problem = "The partition is there already." if statement.kind == "add" else "Partition not found."
        if not done and not statement.may_exist:
            raise TableError(400, "ODPS-0130131", problem)

    async def _instance(self, call: _Call) -> Response:
        problem = self._instances.problem_of(call.parts[3])
        status = "Failed" if problem else "Success"
        if "taskstatus" in call.query:
            task = ("Task", [("Name", "task"), ("Status", status)])
            return _xml(document("Instance", [("Status", "Terminated"), ("Tasks", [task])]))
        if "result" in call.query:
            result = ("Task", [("Name", "task"), ("Status", status), ("Result", problem)])
            return _xml(document("Instance", [("Tasks", [result])]))
        return _xml(document("Instance", [("Status", "Terminated")]))

    async def _tables(self, call: _Call) -> Response:
        prefix = call.query.get("name", "").lower()

        def readable() -> list[str]:
            names = [name for name in self._store.tables(call.project) if name.startswith(prefix)]
            return [name for name in names if call.rights.can_read(call.project, name)]

        tables = [("Table", [("Name", name), ("Owner", "")]) for name in await _in_thread(readable)]
        return _xml(document("Tables", [("Marker", ""), ("MaxItems", 1000), *tables]))

    async def _table(self, call: _Call) -> Response:
        table = await _in_thread(self._readable, call)
        schema = json.dumps({**_schema(table), "lifecycle": table.lifecycle or -1})
        return _xml(document("Table", [("Name", table.name), ("Project", table.project), ("Schema", schema)]))

    async def _partition(self, call: _Call) -> Response:
        def exists() -> bool:
            table = self._readable(call)
            if not table.partition_columns:
                raise TableError(400, "ODPS-0110031", "The table has no partitions.")
            return table.partition_folder(call.partition).exists()

        if not await _in_thread(exists):
            raise TableError(404, "NoSuchPartition", "Partition not found.")
        return _xml(document("Partition", [("Schema", json.dumps({"createTime": 0}))]))

    async def _partitions(self, call: _Call) -> Response:
        table = await _in_thread(self._readable, call)
        elements = "".join(
            "<Partition>"
            + "".join(f"<Column Name={_quoted(name)} Value={_quoted(value)}/>" for name, value in pairs.items())
            + "</Partition>"
            for pairs in await _in_thread(self._store.partitions, table)
        )
        return _xml(
            f'<?xml version="1.0"?><Partitions><Marker/><MaxItems>1000</MaxItems>{elements}</Partitions>'.encode()
        )

    def _readable(self, call: _Call) -> Table:
        call.rights.check(call.project, call.table_name)
        return self._store.table(call.project, call.table_name)

    # ---- uploads

    async def _start_upload(self, call: _Call) -> Response:
        def start() -> UploadSession:
            call.rights.check(call.project, call.table_name, call.partition, writes=True)
            table = self._store.table(call.project, call.table_name)
            return self._store.start_upload(
                table,
                call.partition,
                overwrite=call.query.get("overwrite") == "true",
                create=call.query.get("create_partition") == "true",
            )

        return _upload_response(await _in_thread(start), status_code=201)

    async def _upload(self, call: _Call) -> Response:
        return _upload_response(await _in_thread(self._writable_upload, call))

    def _writable_upload(self, call: _Call) -> UploadSession:
        upload = self._store.upload(call.required("uploadid"))
        call.rights.check(upload.table.project, upload.table.name, upload.partition, writes=True)
        return upload

    async def _put_block(self, call: _Call) -> Response:
        upload = await _in_thread(self._writable_upload, call)
        block = call.required("blockid")
        if not _NUMBER.fullmatch(block):
            raise TableError(400, "InvalidArgument", f"{block[:60]!r} is not a block id.")
        encoding = call.request.headers.get("content-encoding", "")
        # The complete body is received before a thread starts to parse it: a slow client must not occupy one of
        # the few threads.
        with tempfile.TemporaryFile(dir=self._store.drafts) as body:
            await _receive(call.request, body, self._max_block_bytes)

            def store() -> None:
                is_arrow = "arrow" in call.query
                rows = read_block(body, upload.table, encoding=encoding, is_arrow=is_arrow, budget=self._budget)
                # Closing the generator releases its memory reservation if the store raises.
                with closing(rows):
                    self._store.put_block(upload, int(block), rows)

            await self._workers.run(store)
        return Response()

    async def _commit(self, call: _Call) -> Response:
        upload = await _in_thread(self._writable_upload, call)
        await _in_thread(self._store.commit, upload)
        return _upload_response(upload)

    # ---- downloads

    async def _start_download(self, call: _Call) -> Response:
        def start() -> DownloadSession:
            if "downloadid" in call.query:
                return self._readable_download(call)
            call.rights.check(call.project, call.table_name, call.partition)
            table = self._store.table(call.project, call.table_name)
            return self._store.start_download(table, call.partition)

        download = await _in_thread(start)
        session = {
            "DownloadID": download.download_id,
            "Status": "normal",
            "RecordCount": download.rows,
            "Schema": _schema(download.table),
        }
        return _json(session, status_code=201 if call.request.method == "POST" else 200)

    def _readable_download(self, call: _Call) -> DownloadSession:
        download = self._store.download(call.required("downloadid"))
        call.rights.check(download.table.project, download.table.name, download.partition)
        return download

    async def _data(self, call: _Call) -> Response:
        download = await _in_thread(self._readable_download, call)
        row_range = _ROW_RANGE.fullmatch(call.required("rowrange"))
        if row_range is None:
            raise TableError(400, "InvalidRowRange", "rowrange must be (first,count).")
        first, count = int(row_range[1]), int(row_range[2])
        names = _columns_of(download.table, call.query.get("columns", ""))
        accepts = call.request.headers.get("accept-encoding", "")
        encoding, is_arrow = encoding_for(accepts), "arrow" in call.query
        rows = self._store.rows(download, first, count, names)
        chunks = encoded_rows(rows, download.table, names, encoding=encoding, is_arrow=is_arrow)
        # The first chunk is read before the status is sent: errors of a request show there.
        first_chunk = await self._workers.run(lambda: next(chunks, b""))
        headers = {"Content-Encoding": encoding} if encoding else {}
        content = self._stream(first_chunk, chunks)
        return StreamingResponse(content, media_type="application/octet-stream", headers=headers)

    async def _stream(self, first_chunk: bytes, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        chunk: bytes | None = first_chunk
        while chunk is not None:
            yield chunk
            # A thread only for one chunk: a client that reads slowly must not occupy it between two.
            chunk = await self._workers.run(lambda: next(chunks, None))


class _Instances:
    """The outcomes of statements. A statement is finished when its response is sent."""

    def __init__(self) -> None:
        self._problems: OrderedDict[str, str] = OrderedDict()

    def add(self, problem: str) -> str:
        """Records the error of a statement, empty for none; returns the id of its instance."""
        instance_id = uuid.uuid4().hex
        self._problems[instance_id] = problem
        # Clients do not delete instances, so the oldest ones are dropped.
        while len(self._problems) > _MAX_INSTANCES:
            self._problems.popitem(last=False)
        return instance_id

    def problem_of(self, instance_id: str) -> str:
        """Returns the error of a statement, empty for none."""
        try:
            return self._problems[instance_id]
        except KeyError:
            raise TableError(404, "NoSuchObject", "There is no such instance.") from None


class _Workers:
    """The few threads that read and write rows."""

    def __init__(self) -> None:
        self._limiter: anyio.CapacityLimiter | None = None  # created in the event loop that uses it

    async def run(self, function: Callable[[], _T]) -> _T:
        """Runs a slow function in one of a few threads, so that other requests find free threads."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(_WORKERS)
        try:
            with anyio.fail_after(_MAX_QUEUE_S):
                # The wait for a thread has a limit, the work has none: run_sync(limiter=…) inside fail_after would
                # limit both.
                await self._limiter.acquire_on_behalf_of(function)
        except TimeoutError:
            text = "Other requests occupy all threads that the service has for rows; try again later."
            raise TableError(429, "FlowExceeded", text) from None
        try:
            return await anyio.to_thread.run_sync(function)
        finally:
            self._limiter.release_on_behalf_of(function)


class _Call:
    """A request with its parsed path and query."""

    def __init__(self, request: Request, path: str, query: Mapping[str, str], rights: TableRights) -> None:
        self.request = request
        self.path = path
        self.query = query
        self.rights = rights
        self.parts = [part for part in path.split("/") if part]

    @property
    def project(self) -> str:
        return self.parts[1]

    @property
    def table_name(self) -> str:
        return self.parts[-1]

    @property
    def partition(self) -> dict[str, str]:
        return read_partition(self.query.get("partition", ""))

    def required(self, name: str) -> str:
        """Returns the value of a parameter, or raises `MissingArgument`."""
        if not self.query.get(name):
            raise TableError(400, "MissingArgument", f"The parameter {name} is missing.")
        return self.query[name]


async def _in_thread(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: function(*args, **options))


async def _body(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise TableError(413, "RequestTooLarge", f"The body has more than {max_bytes} bytes.")
    return bytes(body)


async def _receive(request: Request, file: BinaryIO, max_bytes: int) -> None:
    """Writes a body into a file, about 1 MiB at a time."""
    size_bytes, waiting = 0, bytearray()
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > max_bytes:
            text = f"The body has more than {max_bytes} bytes."
            raise TableError(413, "RequestTooLarge", text)
        waiting += chunk
        if len(waiting) >= _BODY_CHUNK_BYTES:
            await _in_thread(file.write, bytes(waiting))
            waiting.clear()

    def finish() -> None:
        file.write(waiting)
        file.seek(0)

    await _in_thread(finish)


def _query_of(body: bytes) -> str:
    """Returns the text of the only `Query` in the XML of an instance."""
    parser = expat.ParserCreate("utf-8")
    queries: list[list[str]] = []
    path: list[str] = []
    count = 0

    def start(tag: str, _: object) -> None:
        nonlocal count
        count += 1
        if count > _MAX_ELEMENTS:
            raise TableError(400, "MalformedXML", "The body has more elements than any request needs.")
        path.append(tag)
        if tag == "Query":
            queries.append([])

    def text(data: str) -> None:
        if path[-1] == "Query":
            queries[-1].append(data)

    def refuse(*_: object) -> None:
        raise TableError(400, "MalformedXML", "The body declares a document type.")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda tag: path.pop()
    parser.CharacterDataHandler = text
    # Entities of a document type could expand to gigabytes ("billion laughs").
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(body, True)
    except expat.ExpatError as error:
        raise TableError(400, "MalformedXML", f"The body cannot be read: {error}.") from error
    if len(queries) != 1:
        raise TableError(400, "ODPS-0130161", f"The instance has {len(queries)} queries; one is needed.")
    return "".join(queries[0])


def _columns_of(table: Table, text: str) -> list[str] | None:
    """Returns the columns that a client requests, in its order; None for all."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        return None
    columns = {name.lower(): name for name in table.columns}
    if unknown := [name for name in names if name not in columns]:
        raise TableError(400, "NoSuchColumn", f"The table has no column {unknown[0][:128]!r}.")
    if len({*names}) != len(names):
        raise TableError(400, "InvalidArgument", "A column is requested more than once.")
    return [columns[name] for name in names]


def _upload_response(upload: UploadSession, *, status_code: int = 200) -> Response:
    session = {
        "UploadID": upload.upload_id,
        "Status": "closed" if upload.is_committed else "normal",
        "Schema": _schema(upload.table),
        "UploadedBlockList": [{"BlockID": block_id} for block_id in upload.block_ids()],
        "MaxFieldSize": 8 << 20,
    }
    return _json(session, status_code=status_code)


def _schema(table: Table) -> dict[str, Any]:
    def column_list(types: Mapping[str, str]) -> Sequence[dict[str, Any]]:
        return [{"name": name, "type": type_, "nullable": True} for name, type_ in types.items()]

    return {"columns": column_list(table.columns), "partitionKeys": column_list(table.partition_columns)}


def _json(content: Mapping[str, Any], *, status_code: int = 200) -> Response:
    return Response(json.dumps(content), status_code=status_code, media_type="application/json")


def _xml(content: bytes) -> Response:
    return Response(content, media_type="application/xml")


def _quoted(text: str) -> str:
    from xml.sax.saxutils import quoteattr

    return quoteattr(printable(text))


def _error_response(error: TableError, request_id: str) -> Response:
    content = [
        ("Code", error.code),
        ("Message", error.message),
        ("RequestId", request_id),
        ("HostId", "pai-sdk"),
    ]
    return Response(document("Error", content), status_code=error.status_code, media_type="application/xml")
