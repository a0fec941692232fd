"""Checks of arguments."""

from __future__ import annotations

import pytest

from pai_sdk._wire.pai.arguments import seconds_or_none


@pytest.mark.parametrize(("timeout", "seconds"), [(60, 60.0), (-1, 0.0), (None, None)])
def test_a_timeout_is_a_number_of_seconds_or_none(timeout: object, seconds: float | None) -> None:
    assert seconds_or_none(timeout) == seconds
