"""Pickled functions: what is still known of their code in the other process."""

from __future__ import annotations

import pickle
import sys
import traceback
from types import ModuleType

import pytest

from pai_sdk._core.function_pickle import dumps
from pai_sdk._core.threads import in_thread
from pai_sdk._core.user_modules import is_of_user

pytestmark = pytest.mark.interpreter


def test_the_traceback_of_an_unpickled_function_shows_its_lines() -> None:
    def outer() -> None:
        def inner() -> None:
            raise ValueError("wrong")  # this line

        inner()

    copied = pickle.loads(dumps(outer))
    assert copied.__code__ is not outer.__code__
    try:
        copied()
    except ValueError as error:
        shown = "".join(traceback.format_exception(error))
    assert "inner()\n" in shown
    assert "# this line" in shown


def test_modules_of_python_are_not_those_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # as in a prompt: without a file
    assert is_of_user("__main__")
    assert not is_of_user("json")


def test_a_call_in_a_thread_has_a_result() -> None:
    assert in_thread(pow, 2, 3).result() == 8
