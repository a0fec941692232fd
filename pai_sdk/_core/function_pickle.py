"""Pickles functions with cloudpickle, with the file names of their code, so that tracebacks show its lines."""

from __future__ import annotations

import io
import sys
from collections import ChainMap
from functools import cache
from types import CodeType, FunctionType
from typing import Any, ClassVar

# cloudpickle 3.1.3 and later write this instead of the name of the file.
_NO_FILE = "<dynamic-code>"
_PACKAGE = __name__.partition(".")[0]


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

        def reducer_override(self, value: Any) -> Any:
            if _is_public(value):
                return getattr, (sys.modules[_PACKAGE], value.__name__)
            return super().reducer_override(value)

    return FunctionPickler


def _is_public(value: Any) -> bool:
    """Returns True for a function or class that pai_sdk has at its top.

    Pickled by that path, and not by the module that defines it: the image of a job may have another release.
    """
    if not isinstance(value, type | FunctionType) or not str(value.__module__).startswith(f"{_PACKAGE}."):
        return False
    package: Any = sys.modules[_PACKAGE]
    return value.__name__ in package.__all__ and getattr(package, value.__name__) is value
