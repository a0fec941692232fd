"""Functions and values as texts: the same in each process, and another one when code or content has changed."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import pickle
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from pai_sdk.base.user_modules import is_of_user

__all__ = ["CODE", "content_of", "sources_of"]

_Seen = set[int]
"""The functions and classes that a text already has, by id: they may name each other."""

CODE = "the code of the function"
"""What a changed source is called."""

_Part = tuple[str, str]
"""What a text is called, and the text."""

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


def sources_of(function: Any) -> dict[str, list[str]]:
    """The source of a function, and of the functions, classes and values that it names; not of installed packages.

    Args:
        function: a function, a method, a partial, or an object that can be called.

    Returns:
        The texts by what a user calls them: `the code of the function`, `variable RATE`.
    """
    found: dict[str, list[str]] = {CODE: []}
    for called, text in _sources(function, set()):
        found.setdefault(called, []).append(text)
    return found


def _sources(function: Any, seen: _Seen, *, only_own: bool = False) -> Iterator[_Part]:
    """The source of a function.

    Args:
        function: as above.
        seen: functions that are left out; it is one of them from here on.
        only_own: without what it names in its module.
    """
    if isinstance(function, functools.partial):
        yield "an argument of the partial", _content([function.args, function.keywords], seen)
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
        name = getattr(function, "__qualname__", repr(type(function)))
        yield CODE, f"{getattr(function, '__module__', '')}.{name}"
        if isinstance(call := inspect.getattr_static(type(function), "__call__", None), types.FunctionType):
            yield from _state_of_owner(function, seen)
            yield from _sources(call, seen)
        return
    try:
        yield CODE, inspect.getsource(function)
        is_whole = function.__name__ != "<lambda>"  # the source of a lambda is its line, which may have several
    except (OSError, TypeError):  # it was typed in, or made by exec
        is_whole = False
    if not is_whole:
        yield from _code(function.__code__)
    yield "a default value of the function", _content([function.__defaults__, function.__kwdefaults__], seen)
    if not only_own:
        yield from _variables(function, seen)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"variable {name}", _content(_value_in(cell), seen)


def _value_in(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it gets its value later
        return None


def _variables(function: types.FunctionType, seen: _Seen) -> Iterator[_Part]:
    """The functions, classes and values that a function names."""
    names = [*_names_in(function.__code__)]
    for name in names:
        if name in function.__globals__:
            yield from _variable(name, function.__globals__[name], names, seen)


def _variable(name: str, value: Any, names: Sequence[str], seen: _Seen) -> Iterator[_Part]:
    """A value, a class or a function that is named.

    Args:
        name: of the variable.
        value: what it is.
        names: what is taken of it, if it is a module.
        seen: as above.
    """
    if isinstance(value, types.ModuleType):
        if is_of_user(value.__name__):
            for attribute in filter(vars(value).__contains__, names):
                found = vars(value)[attribute]
                # Only modules below this one are followed: two modules may have each other.
                if not isinstance(found, types.ModuleType) or found.__name__.startswith(f"{value.__name__}."):
                    yield from _variable(f"{name}.{attribute}", found, names, seen)
    elif isinstance(value, type):
        yield from _sources_of_class(value, seen)
    elif isinstance(value, types.FunctionType):
        if is_of_user(value.__module__):
            yield from _sources(value, seen)
    elif (text := _whole_content(value, seen)) is not None:
        yield f"variable {name}", text


def _sources_of_class(given: type, seen: _Seen) -> Iterator[_Part]:
    """The source of a class, of the classes that it is made of, and of what its methods name.

    It is put together from the methods and the attributes. `inspect.getsource` of a class parses the whole file,
    which Python 3.11 cannot do in two threads at once.
    """
    if not is_of_user(given.__module__) or id(given) in seen:
        return
    seen.add(id(given))
    bases = [base.__qualname__ for base in given.__bases__]
    fields = [f"{name}: {type_}" for name, type_ in vars(given).get("__annotations__", {}).items()]
    yield CODE, f"class {given.__qualname__}({bases}): {fields}"
    for base in given.__bases__:
        yield from _sources_of_class(base, seen)
    for name, value in vars(given).items():
        method = inspect.unwrap(getattr(value, "__func__", None) or getattr(value, "fget", None) or value)
        if isinstance(method, types.FunctionType):
            yield from _sources(method, seen)
        elif isinstance(value, type):
            yield from _sources_of_class(value, seen)
        elif not name.startswith("__") and (text := _whole_content(value, seen)) is not None:
            yield f"variable {given.__qualname__}.{name}", text


def _state_of_owner(owner: Any, seen: _Seen) -> Iterator[_Part]:
    """The attributes of an object whose method is called."""
    if not isinstance(owner, type | types.ModuleType):
        yield "an attribute of the object", _content(getattr(owner, "__dict__", {}), seen)


def _code(code: types.CodeType) -> Iterator[_Part]:
    constants = [one for one in code.co_consts if not isinstance(one, types.CodeType)]
    yield CODE, repr((code.co_code, code.co_names))
    yield CODE, _content(constants, set())  # there are sets in it, which `repr` gives in any order
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

    An attempt has a copy of `seen`, as long as it may fail: what it has seen is in no text yet.
    """
    seen_here = {*seen}

    def in_order(one: Any) -> Any:
        if isinstance(one, set | frozenset):
            return sorted(_content(item, seen_here) for item in one)
        if isinstance(one, _FUNCTIONS):
            return [*_sources(one, seen_here)]
        raise TypeError

    try:
        text = json.dumps(value, sort_keys=True, default=in_order)
    except (TypeError, ValueError, RecursionError):
        return _pickled(value, seen, fast=True) or _pickled(value, seen, fast=False)
    seen |= seen_here
    return text


def _pickled(value: Any, seen: _Seen, *, fast: bool) -> str | None:
    """A hash of the pickle.

    Args:
        value: any value.
        seen: as above.
        fast: whether parts that are the same object are pickled again each time. If not, equal values with other
            such parts differ; but only then may a part contain itself.
    """
    hashed, seen_here = _Hash(), {*seen}
    try:
        _Pickler(hashed, seen_here, fast=fast).dump(value)
    except Exception:  # whatever the `__reduce__` of an object raises
        return None
    seen |= seen_here
    return hashed.sha256.hexdigest()


class _Hash:
    """A file that keeps only a hash of what is written to it."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, chunk: Any) -> int:
        self.sha256.update(chunk)
        return memoryview(chunk).nbytes


class _Pickler(pickle.Pickler):
    """Pickles sets in the same order in each process, functions and the user's classes by their source.

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
        if isinstance(value, type) and is_of_user(value.__module__):
            return [value.__qualname__, [*_sources_of_class(value, self._seen)]]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return _tensor(value, torch)
        return None


def _tensor(value: Any, torch: Any) -> list[Any]:
    """Type, shape and a hash of a tensor; its pickle has addresses."""
    values = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return [type(value).__qualname__, str(value.dtype), [*value.shape], hashlib.sha256(values.numpy()).hexdigest()]
