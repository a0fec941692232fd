"""Processes that outlive the one that starts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._core.detached import start_detached
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter


def test_a_process_that_exits_before_it_reads_its_input_is_no_error_here(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = start_detached("pai_sdk._core.no_such_module", log=log, content=bytes(1 << 20))
    assert process.wait(PATIENCE_S) != 0
    assert "ModuleNotFoundError" in log.read_text()
