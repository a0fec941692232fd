"""Removes the frames of this package from tracebacks that users see.

The message of an error of the package is the important part: that of a refused request would otherwise come below
20 to 30 lines of this package and of its HTTP library. An error in the user's own function, called by the package,
shows the frames of that function. The full traceback is logged at the level DEBUG. Standard library only.
"""

from __future__ import annotations

import logging
import re
import sys
import sysconfig
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from inspect import isgeneratorfunction
from itertools import zip_longest
from types import FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from pai_sdk.errors import PaiError, RemoteTraceback

logger = logging.getLogger(__name__)

_PACKAGE = __name__.partition(".")[0]
_SPECIAL = ("__bool__", "__call__", "__getitem__", "__init__", "__iter__", "__len__", "__next__", "__repr__")
_LIBRARY = re.compile(rf"{re.escape(sysconfig.get_path('stdlib'))}|.*[/\\](?:site|dist)-packages[/\\]|<frozen ")
# From Python 3.11 on, a bare `raise` takes the traceback that the error has now, and adds no frame to it. Before,
# it takes the one that was caught, so the error is raised anew, which adds the one frame of the wrapper.
_RAISES_AS_IS = sys.version_info >= (3, 11)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)


def short_traceback(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps a function: errors leave it without the frames of this package."""
    # A `PaiError` or Ctrl-C has the caller's frames only. An error of user code that the function called has the
    # frames of that code too. Any other error is a defect of the package, and keeps all frames. Only calls from
    # outside the package are shortened. A cause with the traceback of a function in another process is kept,
    # because it shows user code.
    if isgeneratorfunction(function):
        return cast("Callable[_P, _R]", _short_generator(function))

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            if not _is_of_package(sys._getframe(1).f_globals) and _shorten(error) and not _RAISES_AS_IS:
                raise error
            raise

    return call


def _short_generator(function: Callable[_P, Generator[Any, Any, Any]]) -> Callable[_P, Generator[Any, Any, Any]]:
    @wraps(function)
    def generate(*args: _P.args, **kwargs: _P.kwargs) -> Generator[Any, Any, Any]:
        try:
            return (yield from function(*args, **kwargs))
        except (Exception, KeyboardInterrupt) as error:
            if not _is_of_package(sys._getframe(1).f_globals) and _shorten(error) and not _RAISES_AS_IS:
                raise error
            raise

    return generate


def short_tracebacks(cls: _C) -> _C:
    """Applies `short_traceback` to all public methods and properties of a class."""
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


def _is_of_package(caller: dict[str, Any]) -> bool:
    return str(caller.get("__name__", "")).partition(".")[0] == _PACKAGE


def _shorten(error: BaseException) -> bool:
    """Removes the frames of this package from an error; returns True if it did."""
    is_packages = isinstance(error, PaiError | KeyboardInterrupt)
    is_remote = isinstance(_first_cause(error), RemoteTraceback)
    if not (is_packages or is_remote or _frames_of_user(error)):
        return False
    logger.debug("the full traceback of the following error", exc_info=error)
    _keep_frames_of_user(error)
    cause = error.__cause__
    # The user's function has called sys.exit.
    if cause is not None and not isinstance(cause, Exception):
        _keep_frames_of_user(cause)
    elif is_packages and not is_remote:
        # Kept for debuggers; Python does not print it.
        error.__context__ = error.__cause__ or error.__context__
        error.__cause__, error.__suppress_context__ = None, True
    return True


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _keep_frames_of_user(error: BaseException) -> None:
    frames = _frames_of_user(error)
    for entry, following in zip_longest(frames, frames[1:]):
        entry.tb_next = following
    error.__traceback__ = frames[0] if frames else None


def _frames_of_user(error: BaseException) -> list[TracebackType]:
    """Returns the frames of user code that the package has called, and of libraries below."""
    frames = [each for each in _entries(error.__traceback__) if not _is_of_package(each.tb_frame.f_globals)]
    start = next((at for at, each in enumerate(frames) if not _is_library(each)), len(frames))
    return frames[start:]


def _is_library(entry: TracebackType) -> bool:
    return bool(_LIBRARY.match(entry.tb_frame.f_code.co_filename))


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def error_text(error: BaseException) -> str:
    """Returns the message of an error for a record, also if `__str__` raises or it has lone surrogates."""
    try:
        message = str(error)
    except Exception as raised:  # raised by its `__str__`
        message = f"its message raises {type(raised).__name__}"
    # Lone surrogates cannot be printed or written.
    return message.encode(errors="replace").decode()
