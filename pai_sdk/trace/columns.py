"""Turns the values of one step into columns of fixed types. All mistakes are found here, in the caller.

A numeric array needs no Arrow object per step: it is copied into a numpy buffer that becomes an Arrow array when
the block is complete, without another copy. All other values become Arrow arrays at once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pai_sdk.base.hints import is_of_type, name_hint
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Prepared: TypeAlias = "np.ndarray | pa.Array"
"""A checked column: a numpy array that is still the caller's memory, or an Arrow array of the right type."""

_SCALARS = (bool, int, float, str, bytes)


class Columns:
    """Checks the columns of each step against a schema.

    Args:
        schema: names and types.
        missing: what becomes of a column that a step does not have: `"error"`, or `"null"`.
    """

    def __init__(self, schema: pa.Schema, *, missing: str = "error") -> None:
        if missing not in ("error", "null"):
            raise InvalidInputError([Problem("missing", f"{missing!r} is no choice", "'error' or 'null'")])
        self._types = {field.name: (field.type, numpy_type(field.type)) for field in schema}
        self._missing_is_null = missing == "null"

    def prepare(self, values: Mapping[str, Any]) -> tuple[dict[str, Prepared], int]:
        """The columns of one step, and how many rows they have.

        A value is a tensor, a numpy array, an Arrow array, or a list, with one item a row. A number or text is
        repeated for all rows of the step.

        Raises:
            InvalidInputError: a column is unknown or missing, has a wrong type, or another length than the rest.
        """
        problems = [
            Problem(f"column {name!r}", "is not in the schema", name_hint(name, self._types))
            for name in values
            if name not in self._types
        ]
        prepared: dict[str, Prepared] = {}
        scalars: dict[str, Any] = {}
        for name, (type_, dtype) in self._types.items():
            value = values.get(name)
            if value is None:
                if not self._missing_is_null and name not in values:
                    problems.append(
                        Problem(f"column {name!r}", "is missing in this step", "or use missing='null'")
                    )
                scalars[name] = None
            elif isinstance(value, _SCALARS) or getattr(value, "shape", None) == ():
                scalars[name] = value.item() if hasattr(value, "item") else value
            else:
                try:
                    prepared[name] = _column(value, type_, dtype)
                except (TypeError, ValueError, OverflowError) as error:  # those of Arrow are ValueErrors, too
                    problems.append(Problem(f"column {name!r}", str(error)))
        lengths = {name: len(column) for name, column in prepared.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            problems.append(Problem("columns", f"differ in their numbers of rows ({told})"))
        rows = next(iter(lengths.values()), 1)
        for name, value in scalars.items():
            try:
                prepared[name] = _repeated(value, rows, *self._types[name])
            except (TypeError, ValueError, OverflowError) as error:
                problems.append(Problem(f"column {name!r}", str(error)))
        if problems:
            raise InvalidInputError(problems)
        return prepared, rows


def numpy_type(type_: pa.DataType) -> np.dtype[Any] | None:
    """The numpy type with the same bytes as an Arrow type, for whole and decimal numbers; None for other types."""
    import pyarrow.types as kinds

    if kinds.is_integer(type_) or kinds.is_floating(type_):
        import numpy as np

        found: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return found
    return None


def _column(value: Any, type_: pa.DataType, dtype: np.dtype[Any] | None) -> Prepared:
    import numpy as np
    import pyarrow as pa

    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, pa.Array):
        return value if value.type == type_ else value.cast(type_)
    array = as_numpy(value)
    if array is None:
        return _from_list(list(value), type_)
    if dtype is not None:
        _check_fits(array, dtype)
        return array
    if array.ndim > 1:
        return _nested(array, type_)
    if array.dtype == object or array.dtype.kind in "US":
        return _from_list(array.tolist(), type_)
    if array.dtype.kind not in "bmM" and not pa.types.is_decimal(type_):
        raise TypeError(f"has {array.dtype} values, but its type is {type_}")
    return pa.array(np.array(array), type=type_)  # a copy: Arrow would keep the caller's memory


def _from_list(values: list[Any], type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if "map<" in str(type_):  # Arrow does not see from tuples that a map is meant
        return pa.array(values, type=type_)
    # Given the type at once, Arrow would cut 0.5 off to 0 without a word; a cast does not.
    return pa.array(values).cast(type_)


def as_numpy(value: Any) -> np.ndarray[Any, Any] | None:
    """The array of a tensor or array, in its own memory; None for a list.

    Raises:
        TypeError: it is none of them.
    """
    import numpy as np

    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # type: ignore[no-any-return]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return None
    raise TypeError(f"{is_of_type(value)}; give a tensor, a numpy array or a list")


def _check_fits(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """See that numbers can be stored as another type: no fraction and no range is lost."""
    import numpy as np

    if array.ndim != 1:
        raise TypeError(f"has {array.ndim} dimensions; a column of numbers has one")
    if array.dtype == dtype or np.can_cast(array.dtype, dtype, "safe"):
        return
    if array.dtype.kind not in "iufb" or (array.dtype.kind == "f" and dtype.kind in "iu"):
        raise TypeError(f"has {array.dtype} values, which do not become {dtype}; convert them")
    if dtype.kind in "iu" and array.size:
        bounds = np.iinfo(dtype)
        least, most = int(array.min()), int(array.max())
        if least < bounds.min or most > bounds.max:
            raise OverflowError(f"has values from {least} to {most}, beyond the range of {dtype}")


def _nested(array: np.ndarray[Any, Any], type_: pa.DataType) -> pa.Array:
    """An array of two or more dimensions as lists, each level with equal lengths."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_list(type_):
        raise TypeError(f"has {array.ndim} dimensions, but its type is {type_}")
    if array.ndim > 2:
        inner = _nested(array.reshape(-1, *array.shape[2:]), type_.value_type)
    else:
        dtype = numpy_type(type_.value_type)
        flat = array.reshape(-1)
        if dtype is not None:
            _check_fits(flat, dtype)
        elif flat.dtype.kind != "b":
            return _from_list(array.tolist(), type_)
        inner = pa.array(np.array(flat, dtype), type=type_.value_type)  # a copy, as the caller reuses its array
    offsets = np.arange(len(array) + 1, dtype=np.int32) * array.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), inner, type=type_)


def _repeated(value: Any, rows: int, type_: pa.DataType, dtype: np.dtype[Any] | None) -> Prepared:
    import numpy as np
    import pyarrow as pa

    if value is None:
        return pa.nulls(rows, type_)
    scalar = pa.scalar(value).cast(type_)
    return pa.repeat(scalar, rows) if dtype is None else np.full(rows, scalar.as_py(), dtype)
