"""The columns of a trace: names and types, in MaxCompute's notation or as Arrow types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pai_sdk._core.extras import missing_extra
from pai_sdk._core.names.hints import name_hint
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

ColumnTypes: TypeAlias = "Mapping[str, str | pa.DataType] | pa.Schema"
"""Column name to type: `{"loss": "double", "ids": "array<bigint>"}`, or a schema of Arrow."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NAME_HINT = "a letter or '_', then letters, digits and '_', maximum 128"
_ARROW_NAMES = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool_",
    "string": "string",
    "binary": "binary",
    "date": "date32",
}
# Unambiguous names of numpy, Arrow and Python. `int` and `float` are MaxCompute's: 32 bits.
_ALIASES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "integer": "int",
    "long": "bigint",
    "float16": "float",
    "float32": "float",
    "float64": "double",
    "bool": "boolean",
    "str": "string",
    "utf8": "string",
    "large_string": "string",
    "bytes": "binary",
    "date32": "date",
    "list": "array",
}
_NTZ = "timestamp_ntz"
_NTZ_UNIT = "s"  # marks `timestamp_ntz` within this module, since Arrow has one type for both timestamps
_METADATA = b"maxcompute_type"
_BARE_DECIMAL = re.compile(r"\bdecimal\b(?!\s*[(:])", re.IGNORECASE)  # not a struct's field
_DEEPEST = 20  # Arrow and Parquet recurse: they fail, or crash, on types that are nested thousands deep
_TOKENS = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>(),:])")


def trace_schema(columns: ColumnTypes) -> pa.Schema:
    """Returns the Arrow schema of a trace, from the type of each column.

    A type is a string in MaxCompute's notation (`bigint`, `double`, `string`, `boolean`, `timestamp`,
    `decimal(10,2)`, `array<double>`, `map<string,bigint>`, `struct<a:int,b:string>`), a name of numpy or Arrow
    (`int64`, `float64`, `bool`), or an Arrow type. `int` and `float` have 32 bits. An InvalidInputError lists all
    problems.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise missing_extra("traces need pyarrow", "odps") from error
    metadata: dict[str, Any] = {}
    if isinstance(columns, pa.Schema):
        metadata = {field.name: field.metadata for field in columns}
        columns = {field.name: field.type for field in columns}
    problems, fields = [], []
    for name, type_ in columns.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(Problem(f"column {name!r}", "is not a column's name", _NAME_HINT))
            continue
        try:
            fields.append(_field(name, type_, metadata.get(name)))
        except ValueError as error:
            problems.append(Problem(f"column {name!r}", str(error)))
    lower = [name.lower() for name in columns if isinstance(name, str)]
    problems += [
        Problem(f"column {name!r}", "is defined more than once", "tables do not distinguish upper and lower case")
        for name in sorted({name for name in lower if lower.count(name) > 1})
    ]
    if not columns:
        problems.append(Problem("columns", "is empty", "such as {'loss': 'double'}"))
    if problems:
        raise InvalidInputError(problems)
    return pa.schema(fields)


def _field(name: str, type_: str | pa.DataType, metadata: Any) -> pa.Field:
    import pyarrow as pa

    if isinstance(type_, pa.DataType):
        return pa.field(name, type_, metadata=metadata)
    canonical = canonical_type(type_)
    return pa.field(
        name, parse_type(type_), metadata={_METADATA: canonical.encode()} if _NTZ in canonical else None
    )


def canonical_type(text: str) -> str:
    """Returns the type in MaxCompute's notation, without aliases and spaces; raises ValueError for others."""
    return type_text(parse_type(text, _NTZ_UNIT), _NTZ_UNIT)


def column_type(field: pa.Field) -> str:
    """Returns the type of a column of `trace_schema` in MaxCompute's notation; raises ValueError for others."""
    metadata = field.metadata or {}
    return metadata[_METADATA].decode() if _METADATA in metadata else type_text(field.type)


def parse_type(text: str, ntz_unit: str = "ns") -> pa.DataType:
    """Returns the Arrow type for a type in MaxCompute's notation; nanoseconds for both kinds of timestamp."""
    parser = _TypeParser(text, ntz_unit)
    type_ = parser.parse()
    if token := parser.token():
        raise ValueError(f"{text!r} is not a type: {token!r} is unexpected")
    return type_


def type_text(type_: pa.DataType, ntz_unit: str | None = None) -> str:
    """Returns the type in MaxCompute's notation; the inverse of `parse_type`. Raises ValueError for others."""
    import pyarrow.types as kinds

    if kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_):
        return f"array<{type_text(type_.value_type, ntz_unit)}>"
    if kinds.is_map(type_):
        return f"map<{type_text(type_.key_type, ntz_unit)},{type_text(type_.item_type, ntz_unit)}>"
    if kinds.is_struct(type_):
        return f"struct<{','.join(f'{field.name}:{type_text(field.type, ntz_unit)}' for field in type_)}>"
    if kinds.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if kinds.is_timestamp(type_) and type_.unit == ntz_unit:
        return _NTZ
    if kinds.is_timestamp(type_):
        return "datetime" if type_.unit == "ms" else "timestamp"
    if kinds.is_large_string(type_):
        return "string"
    for name, arrow in _ARROW_NAMES.items():
        if type_.equals(_plain(arrow)):
            return name
    raise ValueError(f"tables have no type for {type_}")


def numpy_type(type_: pa.DataType) -> np.dtype[Any] | None:
    """Returns the numpy type with the bytes of an Arrow type, for integers and floats; None for other types."""
    import pyarrow.types as kinds

    if kinds.is_integer(type_) or kinds.is_floating(type_):
        import numpy as np

        dtype: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return dtype
    return None


def _tokens(text: object) -> Iterator[str]:
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a type; use a string such as 'double', or an Arrow type")
    position = 0
    text = text.replace("`", "").rstrip()  # MaxCompute quotes the fields of structs
    text = _BARE_DECIMAL.sub("decimal(38,18)", text)
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is not a type")
        yield match[1]
        position = match.end()


class _TypeParser:
    """Parses a type in MaxCompute's notation, from left to right."""

    def __init__(self, text: str, ntz_unit: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._ntz_unit = ntz_unit

    def token(self) -> str:
        """Returns the next token; empty at the end."""
        return next(self._tokens, "")

    def parse(self, depth: int = 0) -> pa.DataType:
        """Parses the type that the next tokens start with."""
        import pyarrow as pa

        if depth > _DEEPEST:
            raise ValueError(f"{self._text[:100]!r}… is nested more than {_DEEPEST} deep")
        name = self.token().lower()
        name = _ALIASES.get(name, name)
        if name in ("array", "map", "struct"):
            return self._nested(name, depth + 1)
        if name in ("decimal", "varchar", "char"):
            return self._sized(name)
        if name in ("timestamp", "datetime", _NTZ):
            return pa.timestamp(self._ntz_unit if name == _NTZ else "ns" if name == "timestamp" else "ms")
        if name not in _ARROW_NAMES:
            names = [*_ARROW_NAMES, "timestamp", _NTZ, "datetime", "decimal", "array", "map", "struct"]
            raise ValueError(f"{self._text!r} is not a type; {name_hint(name, names, max_names=16)}")
        return _plain(_ARROW_NAMES[name])

    def _expect(self, *signs: str) -> str:
        if (token := self.token()) not in signs:
            raise ValueError(f"{self._text!r} is not a type: {' or '.join(map(repr, signs))} is missing")
        return token

    def _nested(self, name: str, depth: int) -> pa.DataType:
        """Parses the types in the brackets of a type that has others."""
        import pyarrow as pa

        fields, sign = [], self._expect("<")
        if name == "struct":
            while sign != ">":
                field = self.token()
                self._expect(":")
                fields.append(pa.field(field, self.parse(depth)))
                sign = self._expect(",", ">")
            return pa.struct(fields)
        first = self.parse(depth)
        if name == "array":
            self._expect(">")
            return pa.list_(pa.field("element", first))
        self._expect(",")
        item = self.parse(depth)
        self._expect(">")
        return pa.map_(first, item)

    def _sized(self, name: str) -> pa.DataType:
        """Parses the numbers in the brackets of a type that has some."""
        import pyarrow as pa

        self._expect("(")
        first = self._number(name)
        if name != "decimal":
            self._expect(")")
            return pa.string()
        scale = self._number(name) if self._expect(",", ")") == "," else None
        if scale is not None:
            self._expect(")")
        return pa.decimal128(first, scale or 0)

    def _number(self, name: str) -> int:
        token = self.token()
        if not token.isdecimal() or len(token) > 9:
            raise ValueError(f"{name} needs a number in parentheses, not {token[:60]!r}")
        return int(token)


def _plain(arrow_name: str) -> pa.DataType:
    import pyarrow as pa

    return getattr(pa, arrow_name)()
