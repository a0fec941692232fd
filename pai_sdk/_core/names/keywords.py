"""Checks arguments: an error lists all unknown and missing keywords, with the nearest names.

Keywords of other SDKs are accepted if they mean the same as ours; otherwise the error names the replacement.

Standard library only: this is loaded with `Estimator` and `Processor`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._core.names.peer_names import DIFFERS, KEYWORDS, OF_JOBS, OF_SESSIONS, keyword_hint
from pai_sdk.errors import Problem, WrongCallError

_UNKNOWN = "is an unknown keyword argument"
_FUNCTION = "Estimator.from_function(train, image_uri='python:3.11') runs a function"
# With this cutoff, `metrics` is not similar to `prices` or `max_retries`.
_NEAR = 0.68

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)


def checks_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps a function without `**keywords`: a `WrongCallError` lists all unknown keyword arguments."""
    # Keywords of other SDKs that are aliases of a parameter are accepted (`peer_names.KEYWORDS`). The signature
    # stays unchanged, for editors and for `inspect`.
    plain = cast("FunctionType", function)
    code = plain.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    needed = names[: code.co_argcount - len(plain.__defaults__ or ())]
    is_init = plain.__name__ == "__init__"

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        _accept_other_names(kwargs, names, names[: len(args)])
        unknown = [name for name in kwargs if name not in names]
        missing = [name for name in needed[len(args) :] if name not in kwargs]
        if unknown or missing or len(args) > code.co_argcount:
            arguments = {**dict(zip(names, args, strict=False)), **kwargs}
            owner = args[0] if args else None
            call = _Call(type(owner).__name__ if is_init else plain.__name__, owner, names, arguments)
            surplus = call.surplus(len(args), code.co_argcount)
            raise WrongCallError(surplus + call.problems(unknown, missing))
        return function(*args, **kwargs)

    return checked


def init_checks_keywords(cls: _C) -> _C:
    """Applies `checks_keywords` to `__init__` of a class."""
    # Placed above `@dataclass`, which writes `__init__`. Without annotations, the signature in `help()` is short
    # enough to read. It is set on the method, since subclasses would inherit that of the class.
    init = checks_keywords(cls.__init__)  # type: ignore[misc]
    full = signature(init)
    parameters = [each.replace(annotation=each.empty) for each in full.parameters.values()]
    short = full.replace(parameters=parameters, return_annotation=full.empty)
    init.__signature__ = short  # type: ignore[attr-defined]
    cls.__init__ = init  # type: ignore[misc]
    return cls


def shows_parameters_of(other: Callable[_P, object]) -> Callable[[Callable[..., _R]], Callable[_P, _R]]:
    """Makes editors, type checkers and `help()` show the parameters that a function forwards to another."""

    def with_parameters(function: Callable[..., _R]) -> Callable[_P, _R]:
        returned = signature(function).return_annotation
        function.__signature__ = signature(other).replace(  # type: ignore[attr-defined]
            return_annotation=returned
        )
        return function

    return with_parameters


def _accept_other_names(kwargs: dict[str, Any], names: Sequence[str], positional: Sequence[str]) -> None:
    """Replaces keywords that are aliases of a parameter, if their value means the same."""
    # None requests nothing, and neither does False for features that pai_sdk does not have: these are dropped.
    for name in [name for name in kwargs if name in KEYWORDS and name not in names]:
        parameter, _, convert = KEYWORDS[name]
        if not keyword_hint(name, names) or (
            convert is not None and (parameter in kwargs or parameter in positional)
        ):
            continue
        value = kwargs[name]
        if convert is None:
            value = None if value is None or value is False else DIFFERS
        elif value is not None:
            value = convert(value)
        if value is not DIFFERS:
            del kwargs[name]
            if value is not None:
                kwargs[parameter] = value


class _Call(NamedTuple):
    """A call with wrong keyword arguments."""

    name: str
    owner: object  # the object whose method it is; for a function, its first argument or None
    parameters: Sequence[str]  # of the function
    arguments: Mapping[str, object]

    def surplus(self, count: int, limit: int) -> list[Problem]:
        """Returns the problem of values by position that have no parameter."""
        first = int(self.parameters[0] in ("self", "cls"))
        by_name = [f"{name}=…" for name in self.parameters[limit:] if not name.startswith("_")]
        message = f"takes {limit - first} values by position, got {count - first}"
        hint = f"give the others by name: {', '.join([*by_name[:3], '…'][: len(by_name)])}" if by_name else ""
        return [Problem(f"{self.name}()", message, hint)] if count > limit else []

    def problems(self, unknown: Sequence[str], missing: Sequence[str]) -> list[Problem]:
        """Returns the problems; an argument that is missing because it was misspelt is reported once."""
        problems, misspelt = [], set[str]()
        for name in unknown:
            problem, candidates = self._problem(name)
            problems.append(problem)
            misspelt.update(candidates)
        has_function = any(isinstance(value, FunctionType) for value in self.arguments.values())
        hints = {"command": _FUNCTION} if has_function else {}
        required = [name for name in missing if name not in misspelt]
        return problems + [Problem(name, "is required", hints.get(name, "")) for name in required]

    def _problem(self, name: str) -> tuple[Problem, Sequence[str]]:
        """Returns the problem of an unknown keyword, and the parameters that it may mean."""
        if owner := self._owner_of(name):
            return Problem(name, f"is a parameter of {owner}, not of {self.name}()"), ()
        parameter, instead, convert = KEYWORDS.get(name, ("", "", None))
        if keyword_hint(name, self.parameters):
            if convert is not None and parameter in self.arguments:
                message = f"is an alias of {parameter!r}, which is also given"
                return Problem(name, message, "give only one of them"), ()
            return Problem(name, _UNKNOWN, instead), (parameter,)
        if hint := self._elsewhere_hint(name, parameter, instead):
            return Problem(name, _UNKNOWN, hint), ()
        free = [each for each in self.parameters[1:] if each not in self.arguments]
        near = nearest(name, [each for each in free if not _differs_by_word(name, each)], cutoff=_NEAR)
        if not near and "inputs" in self.parameters and isinstance(self.arguments[name], str | os.PathLike):
            return Problem(name, _UNKNOWN, f"inputs is a mapping: {self.name}({{{name!r}: …}})"), ()
        return Problem(name, _UNKNOWN, did_you_mean(near)), near

    def _elsewhere_hint(self, name: str, parameter: str, instead: str) -> str:
        """Returns the replacement of a keyword that concerns another object than the call; empty without one."""
        if owner := self._owner_of(parameter or OF_JOBS) if instead else "":
            return f"{instead}; {parameter} is a parameter of {owner}" if parameter else instead
        if "session" in self.parameters and OF_SESSIONS & {name, parameter}:
            return f"it is of the session, session=Session(…): {instead or f'{name}=…'}"
        return f"it is of each job: {instead}" if instead and "workspace_id" in self.parameters else ""

    def _owner_of(self, name: str) -> str:
        """Returns the class of the object, or of its estimator, that has a parameter which the call lacks."""
        owners = (self.owner, self.arguments.get("estimator"), getattr(self.owner, "estimator", None))
        for kind in map(type, owners):
            field = getattr(kind, "__dataclass_fields__", {}).get(name)
            if field is not None and field.init and name not in self.parameters:
                return kind.__name__
        return ""


def _differs_by_word(name: str, other: str) -> bool:
    """Returns True for names with common words but other meanings, as `compiler_config` and `git_config`."""
    tokens, other_tokens = name.split("_"), other.split("_")
    for end in (0, -1):
        while tokens and other_tokens and tokens[end] == other_tokens[end]:
            del tokens[end], other_tokens[end]
    if not (tokens and other_tokens) or nearest("_".join(tokens), ["_".join(other_tokens)]):
        return False
    return not all(nearest(word, other_tokens) for word in tokens)
