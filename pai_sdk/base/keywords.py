"""Checks keyword arguments: an error lists all unknown and missing ones, with the nearest names.

Keywords of other SDKs are accepted where they mean the same as ours; otherwise the error says what replaces them.

Standard library only: this is loaded with `Estimator` and `Processor`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from pai_sdk.base.hints import did_you_mean, nearest
from pai_sdk.base.peer_names import DIFFERS, KEYWORDS, OF_JOBS, keyword_hint
from pai_sdk.errors import Problem, WrongCallError

__all__ = ["checks_keywords", "init_checks_keywords", "shows_parameters_of"]

_UNKNOWN = "is an unknown keyword argument"
_NEAR = 0.68  # `metrics` is not near to `prices` and `max_retries`

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)


def checks_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function; with unknown keyword arguments it raises a `WrongCallError` that lists all of them.

    Keywords of other SDKs that are another name of a parameter are accepted (`peer_names.KEYWORDS`).

    Its signature stays what it is, for editors and for `inspect`.

    Args:
        function: takes no `**keywords`.
    """
    plain = cast("FunctionType", function)
    code = plain.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    needed = names[: code.co_argcount - len(plain.__defaults__ or ())]

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        _accept_other_names(kwargs, names, names[: len(args)])
        unknown = [name for name in kwargs if name not in names]
        missing = [name for name in needed[len(args) :] if name not in kwargs]
        if unknown or missing:
            given = [*names[: len(args)], *(name for name in kwargs)]
            call = _Call(plain.__name__, args[0] if args else None, names, given)
            raise WrongCallError(call.problems(unknown, missing))
        return function(*args, **kwargs)

    return checked


def init_checks_keywords(cls: _C) -> _C:
    """The same class; `checks_keywords` is applied to its `__init__`. For above `@dataclass`, which writes it."""
    cls.__init__ = checks_keywords(cls.__init__)  # type: ignore[misc]
    return cls


def shows_parameters_of(other: Callable[_P, object]) -> Callable[[Callable[..., _R]], Callable[_P, _R]]:
    """Have editors, type checkers and `help()` show the parameters that a function only hands on.

    Args:
        other: the function that gets them.
    """

    def shown(function: Callable[..., _R]) -> Callable[_P, _R]:
        returned = signature(function).return_annotation
        function.__signature__ = signature(other).replace(  # type: ignore[attr-defined]
            return_annotation=returned
        )
        return function

    return shown


def _accept_other_names(kwargs: dict[str, Any], names: Sequence[str], given: Sequence[str]) -> None:
    """Replace keywords that are another name of a parameter, where their value means the same.

    None asks for nothing, and neither does False for what pai_sdk does not have: these are left out.

    Args:
        kwargs: of the call; changed in place.
        names: the parameters there are.
        given: those that were given by position.
    """
    for name in [name for name in kwargs if name in KEYWORDS and name not in names]:
        ours, _, convert = KEYWORDS[name]
        if not keyword_hint(name, names) or (convert is not None and (ours in kwargs or ours in given)):
            continue
        value = kwargs[name]
        if convert is None:
            value = None if value is None or value is False else DIFFERS
        elif value is not None:
            value = convert(value)
        if value is not DIFFERS:
            del kwargs[name]
            if value is not None:
                kwargs[ours] = value


class _Call(NamedTuple):
    """A call with wrong keyword arguments.

    Attributes:
        name: of the function.
        owner: the object whose method it is; for a function, its first argument or None.
        parameters: of the function.
        given: the names of the arguments.
    """

    name: str
    owner: object
    parameters: Sequence[str]
    given: Collection[str]

    def problems(self, unknown: Sequence[str], missing: Sequence[str]) -> list[Problem]:
        """The problems to report; an argument that is missing because it was misspelt is reported once."""
        found, meant = [], set[str]()
        for name in unknown:
            problem, ours = self._problem(name)
            found.append(problem)
            meant.update(ours)
        return found + [Problem(name, "is missing") for name in missing if name not in meant]

    def _problem(self, name: str) -> tuple[Problem, Sequence[str]]:
        """The problem of an unknown keyword, and our parameters that it may mean."""
        if self._is_of_owner(name):
            return Problem(name, f"is a parameter of {type(self.owner).__name__}, not of {self.name}()"), ()
        ours, instead, convert = KEYWORDS.get(name, ("", "", None))
        if keyword_hint(name, self.parameters):
            if convert is not None and ours in self.given:
                what = f"is another name of {ours!r}, which is given too"
                return Problem(name, what, "leave one of them out"), ()
            return Problem(name, _UNKNOWN, instead), (ours,)
        if keyword_hint(name, [*filter(self._is_of_owner, (ours, OF_JOBS))]):
            where = f"; {ours} is a parameter of {type(self.owner).__name__}" if ours else ""
            return Problem(name, _UNKNOWN, f"{instead}{where}"), ()
        free = [each for each in self.parameters[1:] if each not in self.given]
        near = nearest(name, [each for each in free if not _differs_by_word(name, each)], cutoff=_NEAR)
        return Problem(name, _UNKNOWN, did_you_mean(near)), near

    def _is_of_owner(self, name: str) -> bool:
        """True for a parameter of the object, which its method does not have."""
        field = getattr(type(self.owner), "__dataclass_fields__", {}).get(name)
        return field is not None and field.init and name not in self.parameters


def _differs_by_word(name: str, known: str) -> bool:
    """True for names that share words and mean different things, as `compiler_config` and `git_config` do."""
    ours, theirs = name.split("_"), known.split("_")
    for end in (0, -1):
        while ours and theirs and ours[end] == theirs[end]:
            del ours[end], theirs[end]
    if not (ours and theirs) or nearest("_".join(ours), ["_".join(theirs)]):
        return False
    return not all(nearest(word, theirs) for word in ours)
