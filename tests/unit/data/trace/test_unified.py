"""The common type of columns whose types differ."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pai_sdk._data.trace.unified import unified, wider
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

POINT = pa.struct([("x", pa.int32())])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.int16(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.decimal128(10, 2), pa.int64(), pa.decimal128(21, 2)),
        (pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.null(), pa.list_(pa.int8()), pa.list_(pa.int8())),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.list_(pa.float32()), pa.list_(pa.float64()), pa.list_(pa.float64())),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32()), pa.list_(pa.float32())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
        (POINT, pa.struct([("y", pa.string())]), pa.struct([("x", pa.int32()), ("y", pa.string())])),
        (
            pa.list_(POINT),
            pa.list_(pa.struct([("x", pa.float64())])),
            pa.list_(pa.struct([("x", pa.float64())])),
        ),
    ],
    ids=str,
)
def test_the_wider_type_holds_the_values_of_both(
    one: pa.DataType, other: pa.DataType, expected: pa.DataType
) -> None:
    assert wider(one, other) == expected
    assert wider(other, one) == expected or pa.types.is_struct(expected)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.string(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.bool_(), pa.int64()),
        (pa.date32(), pa.timestamp("ms")),
        (pa.decimal128(10, 2), pa.float64()),
        (pa.decimal128(38, 2), pa.decimal128(38, 10)),
        (pa.decimal128(38, 37), pa.int8()),
        (pa.decimal256(76, 0), pa.decimal128(5, 2)),
        (pa.timestamp("ns", "UTC"), pa.timestamp("ns")),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.list_(pa.decimal128(10, 2)), pa.list_(pa.float64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.int32(), pa.int32())),
        (POINT, pa.struct([("x", pa.string())])),
        (POINT, pa.list_(pa.int32())),
    ],
    ids=str,
)
def test_types_that_do_not_go_together(one: pa.DataType, other: pa.DataType) -> None:
    assert wider(one, other) is None
    assert wider(other, one) is None


def test_an_error_names_each_column_and_its_files() -> None:
    schemas = [
        ("a.parquet", pa.schema([("n", pa.string()), ("x", pa.int32())])),
        ("b.parquet", pa.schema([("n", pa.string()), ("x", pa.int64())])),
        ("c.parquet", pa.schema([("n", pa.int64()), ("x", pa.string())])),
    ]
    with refused(InvalidInputError, "column 'n'", "column 'x'"):
        unified(schemas)
