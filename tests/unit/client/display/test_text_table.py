"""Tables as text."""

from __future__ import annotations

import pytest

from pai_sdk._client.display.text_table import text_table

pytestmark = pytest.mark.interpreter


def test_columns_of_numbers_are_aligned_at_the_right() -> None:
    assert text_table(["job", "loss"], [["a", 0.5], ["bcd", 12.25]]) == ["job   loss", "a      0.5", "bcd  12.25"]
