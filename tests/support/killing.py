"""Processes that are killed at a call of a function."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def killed(kill_in: tuple[Any, str, int], call: Callable[[], object]) -> bool:
    """Whether a process that makes this call is killed: before call `n` of the function, or after it for `-n`."""
    owner, name, number = kill_in
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    try:
        whole, calls = getattr(owner, name), 0

        def count(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os._exit(9)
            result = whole(*arguments, **options)
            if calls == -number:
                os._exit(9)
            return result

        setattr(owner, name, count)
        call()
    except BaseException:
        os._exit(1)
    os._exit(0)
    return False
