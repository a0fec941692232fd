"""MaxCompute's wire for tables: the REST calls and the tunnel of pyodps, as an ASGI application.

Recorded from pyodps 0.13. What traces and their readers need is here: tables and partitions, upload sessions with
blocks of Arrow or of records, download sessions. SQL queries are not; the Parquet files answer those.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree

import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pai_sdk.service.objects.xml import document
from pai_sdk.service.rate import RateLimit
from pai_sdk.service.tables.odps_signature import OdpsVerifier
from pai_sdk.service.tables.statements import Statement, read_partition, read_statement
from pai_sdk.service.tables.table_errors import TableFault
from pai_sdk.service.tables.table_rows import encoded_rows, read_block
from pai_sdk.service.tables.table_store import DownloadSession, Table, TableStore, UploadSession

__all__ = ["TablesApp"]

logger = logging.getLogger(__name__)

_LONGEST_BLOCK_BYTES = 1 << 30
_MOST_INSTANCES = 1000


class TablesApp:
    """Answers signed requests.

    Args:
        store: the tables.
        keys: the secret of each access key id.
        rate: how often those with a key may ask.
        longest_block_bytes: the largest body.

    Example:
        >>> app = TablesApp(store, {"id": "secret"})  # doctest: +SKIP
    """

    def __init__(
        self,
        store: TableStore,
        keys: Mapping[str, str],
        *,
        rate: RateLimit | None = None,
        longest_block_bytes: int = _LONGEST_BLOCK_BYTES,
    ) -> None:
        self._store = store
        self._verifier = OdpsVerifier(keys)
        self._rate = rate
        self._longest_block_bytes = longest_block_bytes
        # What became of each statement: "" or its error. A statement has ended when its request is answered.
        self._instances: OrderedDict[str, str] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        request_id = uuid.uuid4().hex
        try:
            response = await self._answer(Request(scope, receive))
        except TableFault as fault:
            response = _fault(fault, request_id)
        except ClientDisconnect:
            response = _fault(TableFault(400, "IncompleteBody", "The body was cut off."), request_id)
        except Exception:
            logger.exception("request %s %s %s met a fault", request_id, scope["method"], scope["path"])
            response = _fault(TableFault(500, "InternalServerError", "The service met a fault."), request_id)
        response.headers["x-odps-request-id"] = request_id
        response.headers["date"] = formatdate(usegmt=True)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        scope = request.scope
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        headers = {name.lower(): value for name, value in request.headers.items()}
        path = unquote(scope["raw_path"].decode("latin-1").partition("?")[0])
        self._verifier.check(request.method, path, query, headers)
        if self._rate is not None and self._rate.take():
            raise TableFault(429, "FlowExceeded", "The access key makes more requests than this service allows.")
        call = _Call(request, path, dict(query))
        handler = self._handler(call)
        return await handler(call)

    def _handler(self, call: _Call) -> Callable[[_Call], Awaitable[Response]]:
        parts, query, method = call.parts, call.query, call.request.method
        if parts[:1] != ["projects"] or len(parts) < 2:
            raise TableFault(404, "NoSuchObject", f"This service has no {call.path}.")
        match method, parts[2:]:
            case "GET", []:
                return self._project
            case "GET", ["tunnel"] if "service" in query:
                return self._tunnel
            case "POST", ["instances"]:
                return self._run_statement
            case "GET", ["instances", _]:
                return self._instance
            case "GET", ["tables"]:
                return self._tables
            case _, [*_, "tables", _] if "uploads" in query or "uploadid" in query:
                return self._upload_handler(call)
            case _, [*_, "tables", _] if "downloads" in query or "downloadid" in query:
                return self._begin_download if "data" not in query else self._data
            case "GET", [*_, "tables", _] if "partitions" in query:
                return self._partitions
            case "GET", [*_, "tables", _] if "partition" in query:
                return self._partition
            case "GET", [*_, "tables", _] if not {"uploads", "streams", "upserts"} & set(query):
                return self._table
        raise TableFault(404, "NoSuchObject", f"This service has no {method} {call.path}.")

    def _upload_handler(self, call: _Call) -> Callable[[_Call], Awaitable[Response]]:
        match call.request.method, "uploadid" in call.query:
            case "POST", False:
                return self._begin_upload
            case "GET", True:
                return self._upload
            case "PUT", True:
                return self._put_block
            case "POST", True:
                return self._commit
        raise TableFault(405, "MethodNotAllowed", "This is no call of an upload.")

    # ---- the REST calls

    async def _project(self, call: _Call) -> Response:
        return _xml(document("Project", [("Name", call.project), ("State", "AVAILABLE")]))

    async def _tunnel(self, call: _Call) -> Response:
        return Response(call.request.headers.get("host", ""), media_type="text/plain")

    async def _run_statement(self, call: _Call) -> Response:
        body = await _body(call.request, 1 << 20)
        found = _statement_of(body)
        instance_id = uuid.uuid4().hex
        try:
            await _in_thread(self._run, call.project, found)
            self._instances[instance_id] = ""
        except TableFault as fault:
            self._instances[instance_id] = f"{fault.code}: {fault.message}"
        while len(self._instances) > _MOST_INSTANCES:
            self._instances.popitem(last=False)
        location = f"{call.request.base_url}projects/{call.project}/instances/{instance_id}"
        return Response(status_code=201, headers={"Location": location})

    def _run(self, project: str, statement: Statement) -> None:
        if statement.kind == "create":
            done = self._store.create(project, statement)
            problem = f"Table already exists - {project}.{statement.table}"
        elif statement.kind == "drop":
            done = self._store.drop(project, statement.table)
            problem = f"Table not found - {project}.{statement.table}"
        else:
            table = self._store.table(project, statement.table)
            change = self._store.add_partition if statement.kind == "add" else self._store.remove_partition
            done = change(table, statement.partition)
            problem = "The partition is there already." if statement.kind == "add" else "Partition not found."
        if not done and not statement.may_exist:
            raise TableFault(400, "ODPS-0130131", problem)

    async def _instance(self, call: _Call) -> Response:
        try:
            problem = self._instances[call.parts[3]]
        except KeyError:
            raise TableFault(404, "NoSuchObject", "There is no such instance.") from None
        status = "Failed" if problem else "Success"
        if "taskstatus" in call.query:
            task = ("Task", [("Name", "task"), ("Status", status)])
            return _xml(document("Instance", [("Status", "Terminated"), ("Tasks", [task])]))
        if "result" in call.query:
            result = ("Task", [("Name", "task"), ("Status", status), ("Result", problem)])
            return _xml(document("Instance", [("Tasks", [result])]))
        return _xml(document("Instance", [("Status", "Terminated")]))

    async def _tables(self, call: _Call) -> Response:
        names = await _in_thread(self._store.tables, call.project)
        prefix = call.query.get("name", "").lower()
        found = [("Table", [("Name", name), ("Owner", "")]) for name in names if name.startswith(prefix)]
        return _xml(document("Tables", [("Marker", ""), ("MaxItems", 1000), *found]))

    async def _table(self, call: _Call) -> Response:
        table = await _in_thread(self._store.table, call.project, call.table_name)
        schema = json.dumps({**_schema(table), "lifecycle": table.lifecycle or -1})
        return _xml(document("Table", [("Name", table.name), ("Project", table.project), ("Schema", schema)]))

    async def _partition(self, call: _Call) -> Response:
        table = await _in_thread(self._store.table, call.project, call.table_name)
        if not table.partition_folder(call.partition).exists():
            raise TableFault(404, "NoSuchPartition", "Partition not found.")
        return _xml(document("Partition", [("Schema", json.dumps({"createTime": 0}))]))

    async def _partitions(self, call: _Call) -> Response:
        table = await _in_thread(self._store.table, call.project, call.table_name)
        found = "".join(
            "<Partition>"
            + "".join(f"<Column Name={_quoted(name)} Value={_quoted(value)}/>" for name, value in pairs.items())
            + "</Partition>"
            for pairs in await _in_thread(self._store.partitions, table)
        )
        return _xml(
            f'<?xml version="1.0"?><Partitions><Marker/><MaxItems>1000</MaxItems>{found}</Partitions>'.encode()
        )

    # ---- uploads

    async def _begin_upload(self, call: _Call) -> Response:
        def begin() -> UploadSession:
            table = self._store.table(call.project, call.table_name)
            return self._store.begin_upload(
                table,
                call.partition,
                overwrite=call.query.get("overwrite") == "true",
                create=call.query.get("create_partition") == "true",
            )

        return _upload_facts(await _in_thread(begin), status_code=201)

    async def _upload(self, call: _Call) -> Response:
        return _upload_facts(await _in_thread(self._store.upload, call.query["uploadid"]))

    async def _put_block(self, call: _Call) -> Response:
        upload = await _in_thread(self._store.upload, call.query["uploadid"])
        block = call.query.get("blockid", "")
        if not block.isdecimal():
            raise TableFault(400, "InvalidArgument", f"{block!r} is not a block id.")
        body = await _body(call.request, self._longest_block_bytes)
        encoding = call.request.headers.get("content-encoding", "")

        def store() -> None:
            rows = read_block(body, upload.table, encoding=encoding, is_arrow="arrow" in call.query)
            self._store.put_block(upload, int(block), rows)

        await _in_thread(store)
        return Response()

    async def _commit(self, call: _Call) -> Response:
        upload = await _in_thread(self._store.upload, call.query["uploadid"])
        await _in_thread(self._store.commit, upload)
        return _upload_facts(upload)

    # ---- downloads

    async def _begin_download(self, call: _Call) -> Response:
        def begin() -> DownloadSession:
            if download_id := call.query.get("downloadid"):
                return self._store.download(download_id)
            table = self._store.table(call.project, call.table_name)
            return self._store.begin_download(table, call.partition)

        download = await _in_thread(begin)
        facts = {
            "DownloadID": download.download_id,
            "Status": "normal",
            "RecordCount": download.rows,
            "Schema": _schema(download.table),
        }
        return _json(facts, status_code=201 if call.request.method == "POST" else 200)

    async def _data(self, call: _Call) -> Response:
        download = await _in_thread(self._store.download, call.query["downloadid"])
        first, _, count = call.query.get("rowrange", "").strip("()").partition(",")
        if not (first.strip().isdecimal() and count.strip().isdecimal()):
            raise TableFault(400, "InvalidRowRange", "rowrange must be (first,count).")
        names = [name for name in call.query.get("columns", "").split(",") if name] or None
        accepts = call.request.headers.get("accept-encoding", "")
        body, encoding = await _in_thread(
            encoded_rows,
            self._store.rows(download, int(first), int(count), names),
            download.table,
            names,
            accepts=accepts,
            is_arrow="arrow" in call.query,
        )
        headers = {"Content-Encoding": encoding} if encoding else {}
        return Response(body, media_type="application/octet-stream", headers=headers)


class _Call:
    """A request with its path and query taken apart."""

    def __init__(self, request: Request, path: str, query: Mapping[str, str]) -> None:
        self.request = request
        self.path = path
        self.query = query
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


async def _in_thread(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: function(*args, **options))


async def _body(request: Request, longest_bytes: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > longest_bytes:
            raise TableFault(413, "RequestTooLarge", f"The body has more than {longest_bytes} bytes.")
    return bytes(body)


def _statement_of(body: bytes) -> Statement:
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise TableFault(400, "MalformedXML", "The body declares entities.")
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - without a DOCTYPE there is nothing to expand
    except (ElementTree.ParseError, ValueError) as error:
        raise TableFault(400, "MalformedXML", f"The body cannot be read: {error}.") from error
    query = root.findtext(".//Query")
    if not query:
        raise TableFault(400, "ODPS-0130161", "The instance has no query.")
    return read_statement(query)


def _upload_facts(upload: UploadSession, *, status_code: int = 200) -> Response:
    facts = {
        "UploadID": upload.upload_id,
        "Status": "closed" if upload.is_committed else "normal",
        "Schema": _schema(upload.table),
        "UploadedBlockList": [{"BlockID": block_id} for block_id in upload.block_ids()],
        "MaxFieldSize": 8 << 20,
    }
    return _json(facts, status_code=status_code)


def _schema(table: Table) -> dict[str, Any]:
    def listed(types: Mapping[str, str]) -> Sequence[dict[str, Any]]:
        return [{"name": name, "type": type_, "nullable": True} for name, type_ in types.items()]

    return {"columns": listed(table.columns), "partitionKeys": listed(table.partition_columns)}


def _json(facts: Mapping[str, Any], *, status_code: int = 200) -> Response:
    return Response(json.dumps(facts), status_code=status_code, media_type="application/json")


def _xml(content: bytes) -> Response:
    return Response(content, media_type="application/xml")


def _quoted(text: str) -> str:
    from xml.sax.saxutils import quoteattr

    return quoteattr(text)


def _fault(fault: TableFault, request_id: str) -> Response:
    content = [
        ("Code", fault.code),
        ("Message", fault.message),
        ("RequestId", request_id),
        ("HostId", "pai-sdk"),
    ]
    return Response(document("Error", content), status_code=fault.status_code, media_type="application/xml")
