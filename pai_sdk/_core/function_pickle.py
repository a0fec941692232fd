"""Pickles functions with cloudpickle, with the file names of their code, so that tracebacks show its lines."""

from __future__ import annotations

import io
from collections import ChainMap
from functools import cache
from types import CodeType
from typing import Any, ClassVar

__all__ = ["dumps", "pickler_class"]

# cloudpickle 3.1.3 and later write this instead of the name of the file.
_NO_FILE = "<dynamic-code>"


def dumps(value: Any) -> bytes:
    """Pickles a value; functions and classes that the other process cannot import are pickled by value."""
    content = io.BytesIO()
    pickler_class()(content).dump(value)
    return content.getvalue()


@cache
def pickler_class() -> Any:
    """Returns the class of pickler behind `dumps`, for subclasses; imports cloudpickle on the first call."""
    import cloudpickle

    inherited = cloudpickle.Pickler.dispatch_table

    def reduced(code: CodeType) -> tuple[Any, ...]:
        make, values = inherited[CodeType](code)
        # Only text is compared: with `python -bb`, bytes are not.
        return make, tuple(
            code.co_filename if isinstance(value, str) and value == _NO_FILE else value for value in values
        )

    class FunctionPickler(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle has no types
        dispatch_table: ClassVar = ChainMap({CodeType: reduced}, inherited)

    return FunctionPickler
