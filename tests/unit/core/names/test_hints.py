"""Messages suggest the nearest name."""

from __future__ import annotations

import pytest

from pai_sdk._core.names.hints import did_you_mean, name_hint, nearest, type_problem

pytestmark = pytest.mark.interpreter


def test_the_nearest_name_is_a_question() -> None:
    assert did_you_mean(nearest("epoch", ["epochs", "lr"])) == "did you mean 'epochs'?"
    assert name_hint("epoch", ["epochs", "lr"]) == "did you mean 'epochs'?"


def test_without_a_near_name_there_is_a_list() -> None:
    assert name_hint("x", ["epochs", "lr"]) == "available: epochs, lr"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "None"),
        ("secret", "a string"),
        (" ", "an empty string"),
        (7, "an integer"),
        (True, "a boolean"),
        (0.5, "a float"),
        ([], "a list"),
        ({}, "a mapping"),
        (b"", "bytes"),
        ([].append, "builtin_function_or_method"),
        (pytest.Cache, "the class Cache"),
    ],
)
def test_a_problem_names_the_expected_and_the_actual_type(value: object, name: str) -> None:
    assert type_problem("a number", value) == f"expected a number, got {name}"


def test_a_method_is_named_with_its_call() -> None:
    class Plan:
        def run(self) -> None: ...

    assert type_problem("a job", Plan().run) == "expected a job, got the method run; call it: run()"
