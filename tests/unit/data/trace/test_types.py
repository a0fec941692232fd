"""The words for column types."""

import pyarrow as pa
import pytest

from pai_sdk._data.trace.types import canonical_type, parse_type, trace_schema, type_text
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

TEXTS = [
    "tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary", "date", "datetime",
    "timestamp", "decimal(10,2)", "array<double>", "array<array<bigint>>", "map<string,bigint>",
    "struct<a:int,b:array<string>>", "map<string,struct<x:double>>",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_types_come_back_as_they_were(text: str) -> None:
    assert type_text(parse_type(text)) == text


@pytest.mark.parametrize("text", [" ARRAY < Double > ", "array<double>"])
def test_case_and_spaces_do_not_count(text: str) -> None:
    assert parse_type(text) == pa.list_(pa.field("element", pa.float64()))


def test_texts_with_a_length_are_strings() -> None:
    assert parse_type("varchar(10)") == parse_type("char(3)") == pa.string()
    assert parse_type("decimal(12)") == pa.decimal128(12, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("doubel", "did you mean 'double'"),
        ("array<double", "'>' is missing"),
        ("array", "'<' is missing"),
        ("double>", "'>' is unexpected"),
        ("decimal(x)", "needs a number"),
        ("bigint; drop", "is not a type"),
        ("", "is not a type"),
        (7, "is not a type"),
    ],
)
def test_wrong_types_are_refused(text: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        trace_schema({"a": text})  # type: ignore[dict-item]


def test_all_mistakes_of_a_schema_are_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        trace_schema({"1a": "double", "b": "nothing", "C": "int", "c": "int"})
    assert [problem.where for problem in caught.value.problems] == ["column '1a'", "column 'b'", "column 'c'"]


def test_a_schema_needs_a_column() -> None:
    with refused(InvalidInputError, "columns"):
        trace_schema({})


def test_arrow_types_and_schemas_are_taken() -> None:
    schema = pa.schema([("a", pa.int16()), ("b", pa.list_(pa.float32()))])
    assert trace_schema(schema) == schema
    assert trace_schema({"a": pa.int16()}).field("a").type == pa.int16()


def test_types_that_no_table_has() -> None:
    with pytest.raises(ValueError, match="no type for"):
        type_text(pa.duration("s"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("float64", "double"),
        ("float32", "float"),
        ("int64", "bigint"),
        ("Int32", "int"),
        ("uint8", "smallint"),
        ("bool", "boolean"),
        ("str", "string"),
        ("list<float64>", "array<double>"),
        ("map<str,int64>", "map<string,bigint>"),
        ("array<DECIMAL>", "array<decimal(38,18)>"),
        ("struct<decimal:decimal>", "struct<decimal:decimal(38,18)>"),
    ],
)
def test_names_of_numpy_and_arrow(name: str, meant: str) -> None:
    assert parse_type(name) == parse_type(meant)


def test_a_name_without_a_type_here() -> None:
    with pytest.raises(ValueError, match="'uint64' is not a type"):
        parse_type("uint64")


def test_aliases_and_spaces_have_a_canonical_form() -> None:
    assert canonical_type("list< timestamp_ntz >") == "array<timestamp_ntz>"
    assert str(parse_type("array<double>")) == "list<element: double>"
