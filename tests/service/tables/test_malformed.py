"""Malformed requests: each is an error of the client in MaxCompute's form, never one of the service."""

from __future__ import annotations

import io
from collections.abc import Iterator
from urllib.parse import quote, urlencode
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pyarrow as pa
import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odps.models import Record, TableSchema
from odps.tunnel import TableTunnel
from odps.tunnel.io.writer import BaseRecordWriter

from tests.service.tables.conftest import Tables, serving
from tests.service.tables.framing import framed


class Raw:
    """Signed requests that pyodps would not send."""

    def __init__(self, tables: Tables) -> None:
        self.rest = tables.client().rest
        self.url = f"{tables.url}/projects/shop"
        client = tables.client()
        client.create_table("t", "a bigint, b string", if_not_exists=True)
        client.create_table("p", ("a bigint", "dt string"), if_not_exists=True)
        tunnel = TableTunnel(client, endpoint=tables.url)
        self.upload = tunnel.create_upload_session("t").id
        self.download = tunnel.create_download_session("t").id

    def send(
        self, method: str, path: str, query: dict[str, str], body: bytes = b"", **headers: str
    ) -> requests.Response:
        text = urlencode(query, quote_via=quote)
        url = f"{self.url}{quote(path, safe='/')}{'?' if text else ''}{text}"
        request = requests.Request(
            method, url, data=body, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        # A client that follows the signature, and nothing else of pyodps.
        prepared = self.rest.session.prepare_request(request)
        self.rest.account.sign_request(prepared, self.url.removesuffix("/projects/shop"))
        return self.rest.session.send(prepared, timeout=30)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raw]:
    with serving(tmp_path_factory.mktemp("tables")) as tables:
        yield Raw(tables)


def check(response: requests.Response) -> str:
    assert 200 <= response.status_code < 500, response.text
    if response.status_code >= 400:
        root = ElementTree.fromstring(response.content)
        assert root.tag == "Error"
        assert root.findtext("Code")
        return root.findtext("Message") or ""
    return ""


def instance(sql: str, head: str = "") -> bytes:
    return f"{head}<Instance><Job><Tasks><SQL><Query>{escape(sql)}</Query></SQL></Tasks></Job></Instance>".encode()


CALLS: list[tuple[str, str, dict[str, str], str]] = [
    ("GET", "/tables/t", {"downloads": "", "data": "", "rowrange": "(0,1)"}, "downloadid is missing"),
    ("GET", "/tables/t", {"downloadid": "", "data": "", "rowrange": "(0,1)"}, "downloadid is missing"),
    ("GET", "/tables/t", {"downloadid": "x"}, "no download x"),
    ("GET", "/tables/t", {"downloadid": "DOWNLOAD", "data": ""}, "rowrange is missing"),
    *(
        ("GET", "/tables/t", {"downloadid": "DOWNLOAD", "data": "", "rowrange": rows}, "rowrange must be")
        for rows in (f"(0,{2**70})", f"({2**70},1)", "(-1,1)", "(0)", "(,)", "0,1,2", "(²,1)", "(" * 50)
    ),
    *(
        (
            "GET",
            "/tables/t",
            {"downloadid": "DOWNLOAD", "data": "", "rowrange": "(0,1)", "columns": columns},
            message,
        )
        for columns, message in (("c", "no column 'c'"), ("a,a", "more than once"), ("a,A", "more than once"))
    ),
    ("GET", "/tables/t", {"uploadid": ""}, "uploadid is missing"),
    ("GET", "/tables/t", {"uploadid": "../x"}, "no upload"),
    ("PUT", "/tables/t", {"uploadid": "UPLOAD"}, "blockid is missing"),
    *(
        ("PUT", "/tables/t", {"uploadid": "UPLOAD", "blockid": block}, message)
        for block, message in (
            ("9" * 5000, "not a block id"),
            ("-1", "not a block id"),
            ("²", "not"),
            ("20000", "0 to 19999"),
        )
    ),
    ("PUT", "/tables/t", {"uploads": "1"}, "method"),
    ("POST", "/tables/p", {"uploads": "1"}, "partition columns are: dt"),
    ("POST", "/tables/p", {"uploads": "1", "partition": f"dt={'x' * 300}"}, "255 bytes"),
    ("POST", "/tables/p", {"uploads": "1", "partition": "dt=1,dt=2"}, "more than one value"),
    ("GET", "/tables/p", {"partition": f"dt={'x' * 5000}"}, "255 bytes"),
    ("GET", "/tables/t", {"partition": ""}, "has no partitions"),
    ("GET", f"/tables/{'t' * 5000}", {}, "is not the name"),
    ("GET", "/tables/t\0", {}, "is not the name"),
    ("GET", "/schemas/other/tables/t", {}, "has no GET"),
    ("DELETE", "/tables/t", {}, "has no DELETE"),
    ("GET", "/instances/x", {}, "no such instance"),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_malformed_calls(raw: Raw, number: int) -> None:
    method, path, query, message = CALLS[number]
    ids = {"DOWNLOAD": raw.download, "UPLOAD": raw.upload}
    response = raw.send(method, path, {name: ids.get(value, value) for name, value in query.items()})
    assert response.status_code >= 400
    assert message in check(response)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "cannot be read"),
        (b"<a/>", "0 queries"),
        (b"<Query/>", "does not run"),
        (b"<I><Query>DROP TABLE t</Query><Query>DROP TABLE p</Query></I>", "2 queries"),
        (instance("DROP TABLE x", '<?xml version="1.0" encoding="zzz"?>'), ""),
        (instance("SELECT 1", "<!DOCTYPE x>"), "document type"),
        (instance("SELECT 1").decode().encode("utf-16"), "does not run 'SELECT 1'"),
        (b"<a>" * 100_000, "more elements"),
        (b"\xff\xfe<a/>", "cannot be read"),
        (instance(f"CREATE TABLE x (a {'array<' * 3000}int{'>' * 3000})"), "nested more than 20 deep"),
        (instance(f"CREATE TABLE x (a decimal({'9' * 5000}))"), "needs a number"),
        (instance(f"CREATE TABLE {'x' * 200} (a int)"), "128 bytes"),
        (instance(f"ALTER TABLE p ADD PARTITION (dt='{'x' * 300}')"), "255 bytes"),
        (b"x" * (5 << 20), "more than"),
    ],
)
def test_malformed_statements(raw: Raw, body: bytes, message: str) -> None:
    response = raw.send("POST", "/instances", {}, body)
    assert message in check(response)
    assert response.status_code >= 400 or not message


@pytest.mark.parametrize("headers", [{"Content_Encoding": "zzz"}, {"Content_Encoding": "zstd"}, {}])
@pytest.mark.parametrize("query", [{"arrow": ""}, {}])
@pytest.mark.parametrize("body", [b"x", bytes(1000), b"\xff" * 100, framed(b"\xff" * 1000)])
def test_malformed_blocks(raw: Raw, headers: dict[str, str], query: dict[str, str], body: bytes) -> None:
    response = raw.send("PUT", "/tables/t", {"uploadid": raw.upload, "blockid": "0", **query}, body, **headers)
    assert response.status_code in (400, 413)
    check(response)


NAMES = (
    "uploads",
    "uploadid",
    "blockid",
    "downloads",
    "downloadid",
    "data",
    "arrow",
    "rowrange",
    "columns",
    "partition",
)
NAMES += ("partitions", "overwrite", "create_partition", "name", "service", "taskstatus", "result", "streams")
VALUES = st.one_of(
    st.sampled_from(["", "UPLOAD", "DOWNLOAD", "true", "(0,1)", "a", "dt=1", "1"]), st.text(max_size=20)
)
PATHS = (
    "/tables/t",
    "/tables/p",
    "/tables/none",
    "/tables",
    "/tunnel",
    "/instances",
    "",
    "/instances/x",
    "/tables/é",
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.sampled_from(PATHS),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5),
    st.binary(max_size=40),
)
def test_no_request_is_an_error_of_the_service(
    raw: Raw, method: str, path: str, query: dict[str, str], body: bytes
) -> None:
    ids = {"DOWNLOAD": raw.download, "UPLOAD": raw.upload}
    given = {name: ids.get(value, value) for name, value in query.items()}
    response = raw.send(method, path, given, body if method in ("POST", "PUT") else b"")
    assert response.status_code < 500, (response.status_code, response.text)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 400), st.integers(0, 255))
def test_changed_blocks_are_refused_or_read(raw: Raw, position: int, value: int) -> None:
    """Rows with one other byte and right checksums: Arrow must notice what it cannot hold."""
    message = bytearray(pa.record_batch({"a": pa.array([1, 2]), "b": pa.array(["x", "y"])}).serialize())
    message[position % len(message)] = value
    query = {"uploadid": raw.upload, "blockid": "1", "arrow": ""}
    assert raw.send("PUT", "/tables/t", query, framed(bytes(message))).status_code in (200, 400, 413)


def test_records_that_are_cut_off_are_refused(raw: Raw) -> None:
    """The reader of pyodps begins again after an error; what it then finds must not be taken for the end."""
    schema = TableSchema.from_lists(["a", "b"], ["bigint", "string"])
    out = io.BytesIO()
    writer = BaseRecordWriter(schema, out)
    for number in range(1000):
        writer.write(Record(schema=schema, values=[number, "x"]))
    writer.close()
    query = {"uploadid": raw.upload, "blockid": "2"}
    for cut in (1, 3, 500, len(out.getvalue()) // 2):
        response = raw.send("PUT", "/tables/t", query, out.getvalue()[:cut])
        assert response.status_code == 400, cut
    assert raw.send("PUT", "/tables/t", query, out.getvalue()).status_code == 200
