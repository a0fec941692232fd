"""Notebooks are detected by their kernel."""

from __future__ import annotations

import pytest

from pai_sdk._core.kernel import in_notebook

pytestmark = pytest.mark.interpreter


def test_a_test_runs_in_no_notebook() -> None:
    assert not in_notebook()
