"""Whole jobs on a real service with real processes, each test module on a service of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pai_sdk import Session
from pai_sdk._service.embedded import ensure_running
from tests.support.browser import open_browser
from tests.support.service_process import end_service
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def service_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a running service."""
    folder = tmp_path_factory.mktemp("service data")
    ensure_running(folder, timeout_s=PATIENCE_S)
    yield folder
    end_service(folder)


@pytest.fixture
def session(service_dir: Path) -> Session:
    """A session on that service."""
    return Session.embedded(service_dir)


@pytest.fixture
def embedded_home(clean_home: Path) -> Iterator[Path]:
    """A home whose embedded service is stopped at the end."""
    yield clean_home
    if (clean_home / ".pai" / "service").exists():
        end_service(clean_home / ".pai" / "service")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser, whose tests wait as long for the page as others do for a service."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_S * 1000)
    with open_browser() as opened:
        yield opened
