"""Paths of users."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._core.paths import expanded

pytestmark = pytest.mark.interpreter


def test_the_home_of_an_unknown_user_stays_as_it_is() -> None:
    assert expanded("~no-such-user/data") == Path("~no-such-user/data")
