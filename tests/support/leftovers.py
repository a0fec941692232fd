"""Finds and ends what a test or benchmark started and left running: services, jobs, programs in the background."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.waiting import PATIENCE_S, until

__all__ = ["end_processes_of", "has_ended"]


def end_processes_of(home: Path) -> None:
    """End every process that was started with this HOME: politely, and after ten seconds not."""
    while left := [process for process in psutil.process_iter() if _has_home(process, home)]:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        try:
            _await_the_end_of(left, within_s=10)
        except AssertionError:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            _await_the_end_of(left, within_s=PATIENCE_S)


def has_ended(pid: int) -> bool:
    """Whether the process has; one that nobody has asked about yet, a zombie, has too.

    The first process of some containers looks for orphans only every other second.
    """
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _await_the_end_of(processes: Collection[psutil.Process], within_s: float) -> None:
    until(lambda: all(has_ended(process.pid) for process in processes), "their end", within_s=within_s)


def _has_home(process: psutil.Process, home: Path) -> bool:
    try:
        return bool(process.pid != os.getpid() and process.environ().get("HOME") == str(home))
    except psutil.Error:  # it has just ended, or belongs to somebody else
        return False
