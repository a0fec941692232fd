from __future__ import annotations

import pytest

from tests.support.fake_backend import FakeBackend


@pytest.fixture
def fake_backend() -> FakeBackend:
    return FakeBackend()
