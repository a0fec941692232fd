"""Messages suggest the nearest name."""

from __future__ import annotations

import pytest

from pai_sdk._core.names.hints import did_you_mean, is_of_type, name_hint, nearest

pytestmark = pytest.mark.interpreter


def test_the_nearest_name_is_a_question() -> None:
    assert did_you_mean(nearest("epoch", ["epochs", "lr"])) == "did you mean 'epochs'?"
    assert name_hint("epoch", ["epochs", "lr"]) == "did you mean 'epochs'?"


def test_without_a_near_name_there_is_a_list() -> None:
    assert name_hint("x", ["epochs", "lr"]) == "there is: epochs, lr"


def test_a_value_of_a_wrong_type_is_named_by_it() -> None:
    assert is_of_type(7) == "is of type int"
