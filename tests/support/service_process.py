"""Stopping the process of an embedded service."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pai_sdk._service.embedded import ensure_running
from tests.support.leftovers import has_ended
from tests.support.waiting import PATIENCE_S, until

__all__ = ["end_service", "wait_until_gone"]


def end_service(data_dir: Path) -> None:
    """Stop the service of a data folder, if one runs, and wait until it is gone."""
    pid = ensure_running(data_dir, timeout_s=PATIENCE_S).pid
    os.kill(pid, signal.SIGTERM)
    wait_until_gone(pid)


def wait_until_gone(pid: int) -> None:
    """Return when the process has ended."""
    until(lambda: has_ended(pid), f"the end of process {pid}")
