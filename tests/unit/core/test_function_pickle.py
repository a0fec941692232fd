"""Pickled functions: what is still known of their code in the other process."""

from __future__ import annotations

import pickle
import traceback

from pai_sdk._core.function_pickle import dumps


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
