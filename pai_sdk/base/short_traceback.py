"""Has errors end in their message: what a user calls leaves its own frames out of the traceback.

The error of a refused request would else come below 20 to 30 lines of this package and of its HTTP library. The
whole traceback is logged at the level DEBUG. Standard library only.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator
from functools import wraps
from inspect import isgeneratorfunction
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from pai_sdk.errors import PaiError, RemoteTraceback

__all__ = ["short_traceback", "short_tracebacks"]

logger = logging.getLogger(__name__)

_PACKAGE = __name__.partition(".")[0]
_SPECIAL = ("__call__", "__init__", "__iter__")

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)


def short_traceback(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function; a `PaiError` or Ctrl-C leaves it with the caller's frames, and without those below.

    Only what is called from outside the package does so. A cause that is the traceback of a function in another
    process is kept, because it shows the user's own code.
    """
    if isgeneratorfunction(function):
        return cast("Callable[_P, _R]", _short_generator(function))

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except (PaiError, KeyboardInterrupt) as error:
            if _is_ours(sys._getframe(1).f_globals):
                raise
            raise _shortened(error)  # noqa: B904 - that sets whether the context is shown

    return call


def _short_generator(function: Callable[_P, Generator[Any, Any, Any]]) -> Callable[_P, Generator[Any, Any, Any]]:
    @wraps(function)
    def generate(*args: _P.args, **kwargs: _P.kwargs) -> Generator[Any, Any, Any]:
        try:
            return (yield from function(*args, **kwargs))
        except (PaiError, KeyboardInterrupt) as error:
            if _is_ours(sys._getframe(1).f_globals):
                raise
            raise _shortened(error)  # noqa: B904 - that sets whether the context is shown

    return generate


def short_tracebacks(cls: _C) -> _C:
    """The same class, with `short_traceback` for all its public methods and properties."""
    for name, member in [*vars(cls).items()]:
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, short_traceback(member))
        elif isinstance(member, classmethod | staticmethod):
            setattr(cls, name, type(member)(short_traceback(member.__func__)))
        elif isinstance(member, property) and member.fget is not None:
            setattr(cls, name, member.getter(short_traceback(member.fget)))
    return cls


def _is_ours(caller: dict[str, Any]) -> bool:
    return str(caller.get("__name__", "")).partition(".")[0] == _PACKAGE


def _shortened(error: BaseException) -> BaseException:
    logger.debug("the whole traceback of the error that follows", exc_info=error)
    error.__traceback__ = None
    if not isinstance(error.__cause__, RemoteTraceback):
        error.__context__ = error.__cause__ or error.__context__  # for debuggers; Python does not print it
        error.__cause__, error.__suppress_context__ = None, True
    return error
