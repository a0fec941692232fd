"""Finds and ends what a test or benchmark started and left running: services, jobs, programs in the background."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

__all__ = ["end_processes_of"]


def end_processes_of(home: Path) -> None:
    """End every process that was started with this HOME: politely, and after ten seconds not."""
    left = [process for process in psutil.process_iter() if _has_home(process, home)]
    for process in left:
        process.terminate()
    _, stubborn = psutil.wait_procs(left, timeout=10)
    for process in stubborn:
        process.kill()
    psutil.wait_procs(stubborn, timeout=5)


def _has_home(process: psutil.Process, home: Path) -> bool:
    try:
        return bool(process.pid != os.getpid() and process.environ().get("HOME") == str(home))
    except psutil.Error:  # it has just ended, or belongs to somebody else
        return False
