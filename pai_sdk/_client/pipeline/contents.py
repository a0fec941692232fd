"""Functions and values as strings: the same in each process, and another one when code or content has changed.

The code of a function is its loaded code, not the file it came from: the file may have been edited since it was
imported, also during a run.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import pickle
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from typing import Any

from pai_sdk._core.user_modules import is_of_user

CODE = "the code of the function"
"""The label of changed code."""

_Part = tuple[str, str]
"""A label, and the content."""

_LruCache: Any = type(functools.lru_cache(lambda: None))
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, _LruCache)
_DESCRIPTORS = (
    property,
    staticmethod,
    classmethod,
    functools.cached_property,
    functools.partialmethod,
    functools.singledispatchmethod,
)
_ATOMS = frozenset((str, int, float, bool, type(None)))
_CONTAINERS = frozenset((dict, list, tuple, set, frozenset))
_OF_THE_FILE = frozenset(("__module__", "__qualname__", "__firstlineno__"))

_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.local)
_PACKAGE = __name__.partition(".")[0]
_SESSIONS = "pai_sdk._client.session."
"""The package of the classes of sessions. The state of a session and of a lock belongs to a process."""


class _Visited:
    """Numbers the functions and classes that a content already has, because they may refer to each other."""

    def __init__(self, objects: dict[int, tuple[int, object]] | None = None) -> None:
        self._objects = dict(objects or {})

    @property
    def is_empty(self) -> bool:
        return not self._objects

    def add(self, value: object) -> int | None:
        """Returns the number of an object that was added before; adds others and returns None."""
        entry = self._objects.get(id(value))
        if entry is not None:
            return entry[0]
        self._objects[id(value)] = (len(self._objects), value)  # with the object: an id is used again without it
        return None

    def copy(self) -> _Visited:
        return _Visited(self._objects)

    def replace_by(self, other: _Visited) -> None:
        self._objects = other._objects


def content_of(value: Any) -> str:
    """Returns a value as a string: as JSON, or a hash of its pickle, or as `repr` if it cannot be pickled."""
    # `repr` alone would do for few values: that of a large array leaves out most of it.
    return _content(value, _Visited())


def sources_of(function: Any) -> dict[str, list[str]]:
    """Returns the code of a callable and of the values that it names, by a label such as `variable RATE`."""
    sources: dict[str, list[str]] = {CODE: []}
    for label, content in _sources(function, _Visited()):
        sources.setdefault(label, []).append(content)
    return sources


def _sources(function: Any, visited: _Visited) -> Iterator[_Part]:
    """Yields the code of a callable, of the functions that it wraps, and the values that it captures."""
    if isinstance(function, functools.partial):
        yield "an argument of the partial", _content([[*function.args], function.keywords], visited)
        yield from _sources(function.func, visited)
    elif isinstance(function, types.MethodType):
        yield from _state_of_owner(function.__self__, visited)
        yield from _sources(function.__func__, visited)
    else:
        label = (
            CODE
            if visited.is_empty
            else f"the code of {getattr(function, '__qualname__', type(function).__name__)}"
        )
        if (number := visited.add(function)) is not None:
            yield label, f"[{number}]"
        elif isinstance(function, types.FunctionType):
            yield from _function(function, label, visited)
        else:
            yield from _callable(function, label, visited)
        if (wrapped := inspect.getattr_static(function, "__wrapped__", None)) is not None:
            yield from _sources(wrapped, visited)


def _callable(function: Any, label: str, visited: _Visited) -> Iterator[_Part]:
    """Yields the name of a callable object, its attributes, and the code of its class."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    yield label, f"{_stable_module(str(getattr(function, '__module__', '')))}.{name}"
    if isinstance(function, _LruCache):
        yield label, _content(function.cache_parameters(), visited)
    elif isinstance(function, type):
        yield from _sources_of_class(function, visited)
    elif is_of_user(type(function).__module__):
        yield from _state_of_owner(function, visited)
        yield from _sources_of_class(type(function), visited)


def _function(function: types.FunctionType, label: str, visited: _Visited) -> Iterator[_Part]:
    """Yields the code of a function and its values; of a function of a package its name instead of its code."""
    module = str(function.__globals__.get("__name__", ""))  # `__module__` of a wrapper is that of the wrapped one
    if is_of_user(module):
        yield from _code(function.__code__, label, visited)
        yield label, repr(sorted((name, str(kind)) for name, kind in _annotations(function).items()))
    else:
        yield label, f"{_stable_module(module)}.{function.__code__.co_name}"
    yield "a default value of the function", _content([function.__defaults__, function.__kwdefaults__], visited)
    if is_of_user(module):
        yield from _variables(function, visited)
    if module == "functools":  # a closure there is a cache of earlier calls
        for kind, implementation in sorted(
            getattr(function, "registry", {}).items(), key=lambda item: str(item[0])
        ):
            yield label, f"{_stable_module(kind.__module__)}.{kind.__qualname__}"
            yield from _sources(implementation, visited)
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"variable {name}", _content(_value_in(cell), visited)


def _stable_module(name: str) -> str:
    """Returns the name of a module; of one of this package only `pai_sdk`, since releases move the others."""
    return _PACKAGE if name.partition(".")[0] == _PACKAGE else name


def _annotations(function: types.FunctionType) -> dict[str, Any]:
    try:
        return function.__annotations__
    except Exception:  # Python 3.14 evaluates them here, and a name may be missing
        return {}


def _value_in(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it gets its value later
        return None


def _variables(function: types.FunctionType, visited: _Visited) -> Iterator[_Part]:
    """Yields the functions, classes and values that a function names."""
    names = [*_names_in(function.__code__)]
    for name in names:
        if name in function.__globals__:
            yield from _variable(name, function.__globals__[name], names, visited)


def _variable(name: str, value: Any, names: Sequence[str], visited: _Visited) -> Iterator[_Part]:
    """Yields the content of a named value, class or function; of a module, the attributes in `names`."""
    if isinstance(value, types.ModuleType):
        if is_of_user(value.__name__):
            for attribute in filter(vars(value).__contains__, names):
                member = vars(value)[attribute]
                # Only modules below this one are followed: two modules may have each other.
                if not isinstance(member, types.ModuleType) or member.__name__.startswith(f"{value.__name__}."):
                    yield from _variable(f"{name}.{attribute}", member, names, visited)
    elif isinstance(value, type):
        yield from _sources_of_class(value, visited)
    elif isinstance(value, types.FunctionType | _LruCache):
        if is_of_user(value.__module__ or ""):
            yield from _sources(value, visited)
    else:
        yield from _value_of_variable(name, value, visited)


def _value_of_variable(name: str, value: Any, visited: _Visited) -> Iterator[_Part]:
    """Yields the content of a variable; of one that cannot be pickled, such as a client, that of its class."""
    kind = type(value)
    if (
        content := _full_content(value, visited, lenient=kind in _CONTAINERS or is_of_user(kind.__module__))
    ) is not None:
        yield f"variable {name}", content
    else:
        yield from _sources_of_class(kind, visited)


def _sources_of_class(kind: type, visited: _Visited) -> Iterator[_Part]:
    """Yields the code of a class, of the classes that it is made of, and the values that its methods name."""
    label = f"the code of {kind.__qualname__}"
    if not is_of_user(kind.__module__):
        return
    if (number := visited.add(kind)) is not None:
        yield label, f"[{number}]"
        return
    bases = [base.__qualname__ for base in kind.__bases__]
    fields = [f"{name}: {type_}" for name, type_ in vars(kind).get("__annotations__", {}).items()]
    yield label, f"class {kind.__qualname__}({bases}): {fields}"
    for base in (*kind.__bases__, type(kind)):
        yield from _sources_of_class(base, visited)
    for name, value in [*vars(kind).items()]:
        yield from _attribute(name, value, kind, visited)


def _attribute(name: str, value: Any, kind: type, visited: _Visited) -> Iterator[_Part]:
    """Yields the content of an attribute of a class."""
    if isinstance(value, type):
        yield from _sources_of_class(value, visited)
    elif isinstance(value, _FUNCTIONS):
        yield f"the code of {kind.__qualname__}", name
        yield from _sources(value, visited)
    elif functions := _functions_in(value):
        yield f"the code of {kind.__qualname__}", f"{name}: {type(value).__name__}"
        for function in functions:
            yield from _sources(function, visited)
    elif name.startswith("__"):
        if name not in _OF_THE_FILE and _is_plain(value):
            yield f"variable {kind.__qualname__}.{name}", content_of(value)
    else:
        yield from _value_of_variable(f"{kind.__qualname__}.{name}", value, visited)


def _functions_in(value: Any) -> list[Any]:
    """Returns the functions of a property, a class method or a similar descriptor."""
    if not isinstance(value, _DESCRIPTORS):
        return []
    functions = [getattr(value, name, None) for name in ("__func__", "fget", "fset", "fdel", "func", "dispatcher")]
    return [function for function in functions if function is not None]


def _state_of_owner(owner: Any, visited: _Visited) -> Iterator[_Part]:
    """Yields the attributes of an object whose method is called."""
    if not isinstance(owner, type | types.ModuleType):
        yield "an attribute of the object", _content(getattr(owner, "__dict__", {}), visited)


def _code(code: types.CodeType, label: str, visited: _Visited) -> Iterator[_Part]:
    """Yields the executed code, without comments, blank lines and line numbers."""
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    yield label, repr((code.co_code, getattr(code, "co_exceptiontable", b""), names, counts))
    constants = [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]
    if "__firstlineno__" in code.co_names:  # a class in a function: Python 3.13 stores its line
        constants = [
            constant for constant in constants if type(constant) is not int or constant != code.co_firstlineno
        ]
    yield label, _content(constants, visited)  # there are sets in it, which `repr` gives in any order
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant, label, visited)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _content(value: Any, visited: _Visited) -> str:
    content = _full_content(value, visited, lenient=True)
    return repr(value) if content is None else content


def _full_content(value: Any, visited: _Visited, *, lenient: bool) -> str | None:
    """Returns a value as JSON or as a hash of its pickle; None if it cannot be pickled."""
    try:
        if _is_plain(value):
            return json.dumps(value, sort_keys=True)
    except RecursionError:
        pass
    for is_lenient in (False, True) if lenient else (False,):
        for fast in (True, False):
            if (content := _pickled(value, visited, fast=fast, lenient=is_lenient)) is not None:
                return content
    return None


def _is_plain(value: Any) -> bool:
    """Returns whether JSON has exactly this value: no other class, no other keys than strings."""
    kind = type(value)
    if kind is dict:
        return {*map(type, value)} <= {str} and _is_plain([*value.values()])
    return kind in _ATOMS or (kind is list and ({*map(type, value)} <= _ATOMS or all(map(_is_plain, value))))


def _pickled(value: Any, visited: _Visited, *, fast: bool, lenient: bool) -> str | None:
    """Returns a hash of the pickle; None if the value cannot be pickled.

    With `fast`, parts that are the same object are pickled again each time. Otherwise equal values with other such
    parts differ; but only then may a part contain itself.
    """
    hashed, attempt = _Hash(), visited.copy()
    try:
        _Pickler(hashed, attempt, fast=fast, lenient=lenient).dump(value)
    except Exception:  # whatever the `__reduce__` of an object raises
        return None
    visited.replace_by(attempt)
    return hashed.sha256.hexdigest()


class _Hash:
    """A file that keeps only a hash of what is written to it."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, chunk: Any) -> int:
        self.sha256.update(chunk)
        return memoryview(chunk).nbytes


class _Pickler(pickle.Pickler):
    """Pickles sets in the same order in each process, functions and the user's classes by their code."""

    def __init__(self, file: _Hash, visited: _Visited, *, fast: bool, lenient: bool) -> None:
        super().__init__(file, protocol=5)
        self.fast = fast
        self._visited = visited
        self._lenient = lenient

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, set | frozenset):
            return [type(value).__qualname__, sorted(_content(item, self._visited) for item in value)]
        if isinstance(value, _FUNCTIONS):
            return ["function", [*_sources(value, self._visited)]]
        if isinstance(value, type) and is_of_user(value.__module__):
            return [value.__qualname__, [*_sources_of_class(value, self._visited)]]
        if isinstance(value, type) and _stable_module(value.__module__) == _PACKAGE:
            return [_PACKAGE, value.__qualname__]
        if self._lenient and (isinstance(value, _LOCKS) or type(value).__module__.startswith(_SESSIONS)):
            return ["object", type(value).__qualname__]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return _tensor(value, torch)
        return None


def _tensor(value: Any, torch: Any) -> list[Any]:
    """Returns type, shape and a hash of a tensor; its pickle has addresses."""
    values = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return [type(value).__qualname__, str(value.dtype), [*value.shape], hashlib.sha256(values.numpy()).hexdigest()]
