"""Functions and values as texts: the same in each process, and another one when code or content has changed."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["content_of", "sources_of"]

_Seen = set[int]
"""The functions that a text already has, by id: they may name each other."""

_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def content_of(value: Any) -> str:
    """A value as text: as JSON, or by a hash of what pickle makes of it, or as `repr` where it cannot be pickled.

    Args:
        value: any value. `repr` alone would do for few: that of a large array leaves out most of it.

    Example:
        >>> content_of({"sizes": (1, 2)})
        '{"sizes": [1, 2]}'
    """
    return _content(value, set())


def sources_of(function: Any) -> list[str]:
    """The source of a function, and of the functions and values of its module that it names.

    Args:
        function: a function, a method, a partial, or an object that can be called.
    """
    return [*_sources(function, set())]


def _sources(function: Any, seen: _Seen, *, only_own: bool = False) -> Iterator[str]:
    """The source of a function.

    Args:
        function: as above.
        seen: functions that are left out; it is one of them from here on.
        only_own: without what it names in its module.
    """
    if isinstance(function, functools.partial):
        yield _content([function.args, function.keywords], seen)
        yield from _sources(function.func, seen, only_own=only_own)
        return
    function = inspect.unwrap(function)
    if isinstance(function, types.MethodType):
        yield from _state_of_owner(function.__self__, seen)
        function = function.__func__
    if id(function) in seen:
        return
    seen.add(id(function))
    if not isinstance(function, types.FunctionType):
        yield f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(type(function)))}"
        if isinstance(call := inspect.getattr_static(type(function), "__call__", None), types.FunctionType):
            yield from _state_of_owner(function, seen)
            yield from _sources(call, seen)
        return
    try:
        yield inspect.getsource(function)
        is_whole = function.__name__ != "<lambda>"  # the source of a lambda is its line, which may have several
    except (OSError, TypeError):  # it was typed in, or made by exec
        is_whole = False
    if not is_whole:
        yield from _code(function.__code__)
    yield _content([function.__defaults__, function.__kwdefaults__], seen)
    if not only_own:
        yield from _variables(function, seen)
    for cell in function.__closure__ or ():
        yield _content(cell.cell_contents, seen)


def _variables(function: types.FunctionType, seen: _Seen) -> Iterator[str]:
    """The functions and values of its module that a function names."""
    for name in _names_in(function.__code__):
        value = function.__globals__.get(name, function)
        if isinstance(value, types.FunctionType):
            if value.__module__ == function.__module__:
                yield from _sources(value, seen)
        elif not isinstance(value, type | types.ModuleType) and (text := _whole_content(value, seen)) is not None:
            yield f"{name} = {text}"


def _state_of_owner(owner: Any, seen: _Seen) -> Iterator[str]:
    """The attributes of an object whose method is called."""
    if not isinstance(owner, type | types.ModuleType):
        yield _content(getattr(owner, "__dict__", {}), seen)


def _code(code: types.CodeType) -> Iterator[str]:
    constants = [one for one in code.co_consts if not isinstance(one, types.CodeType)]
    yield repr((code.co_code, code.co_names))
    yield _content(constants, set())  # there are sets in it, which `repr` gives in any order
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _code(one)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _content(value: Any, seen: _Seen) -> str:
    text = _whole_content(value, seen)
    return repr(value) if text is None else text


def _whole_content(value: Any, seen: _Seen) -> str | None:
    """The value as JSON, with sets and functions, or a hash of it; None if it cannot be pickled.

    Each attempt has a copy of `seen`: a function that an attempt has seen before it failed is in no text yet.
    """
    seen_here = {*seen}

    def in_order(one: Any) -> Any:
        if isinstance(one, set | frozenset):
            return sorted(_content(item, seen_here) for item in one)
        if isinstance(one, _FUNCTIONS):
            return [*_sources(one, seen_here)]
        raise TypeError

    try:
        return json.dumps(value, sort_keys=True, default=in_order)
    except (TypeError, ValueError, RecursionError):
        return _pickled(value, seen, fast=True) or _pickled(value, seen, fast=False)


def _pickled(value: Any, seen: _Seen, *, fast: bool) -> str | None:
    """A hash of the pickle.

    Args:
        value: any value.
        seen: as above.
        fast: whether parts that are the same object are pickled again each time. If not, equal values with other
            such parts differ; but only then may a part contain itself.
    """
    hashed = _Hash()
    try:
        _Pickler(hashed, {*seen}, fast=fast).dump(value)
    except Exception:  # whatever the `__reduce__` of an object raises
        return None
    return hashed.sha256.hexdigest()


class _Hash:
    """A file that keeps only a hash of what is written to it."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, chunk: Any) -> int:
        self.sha256.update(chunk)
        return memoryview(chunk).nbytes


class _Pickler(pickle.Pickler):
    """Pickles sets in the same order in each process, and functions by their source instead of their name.

    Many of these functions are those that make objects again, such as `re._compile`. What they name in their
    modules, such as a cache, is no content.
    """

    def __init__(self, file: _Hash, seen: _Seen, *, fast: bool) -> None:
        super().__init__(file, protocol=5)
        self.fast = fast
        self._seen = seen

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, set | frozenset):
            return [type(value).__qualname__, sorted(_content(one, self._seen) for one in value)]
        if isinstance(value, _FUNCTIONS):
            return ["function", [*_sources(value, self._seen, only_own=True)]]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return _tensor(value, torch)
        return None


def _tensor(value: Any, torch: Any) -> list[Any]:
    """Type, shape and a hash of a tensor; its pickle has addresses."""
    values = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return [type(value).__qualname__, str(value.dtype), [*value.shape], hashlib.sha256(values.numpy()).hexdigest()]
