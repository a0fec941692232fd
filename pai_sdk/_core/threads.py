"""A daemon thread for each call. Unlike pool threads, it does not keep the process alive if a call never returns.

Standard library only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_thread(call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
    """Calls a function in a new thread, which has the name of the function."""
    future: Future[_R] = Future()

    def work() -> None:
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            # Also SystemExit and the like: the caller that waits for the result decides.
            future.set_exception(error)
        else:
            future.set_result(result)

    # Named, so that thread dumps show what a call that never returns was for.
    threading.Thread(target=work, name=f"pai-{getattr(call, '__name__', 'call').strip('_')}", daemon=True).start()
    return future
