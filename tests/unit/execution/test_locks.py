"""A lock ends with its holder, whatever other threads start at that moment."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from pai_sdk.agent.locks import locked


def test_a_program_that_is_just_being_started_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is another program, a process that was forked has all that its parent had open, the lock too."""
    opened: list[int] = []
    really_open = os.open

    def noted(*args: object, **options: object) -> int:
        opened.append(really_open(*args, **options))  # type: ignore[arg-type]
        return opened[-1]

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", noted)
        with locked(tmp_path / "lock"):
            as_in_a_fork = os.dup(opened[0])
    try:
        with locked(tmp_path / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
            assert is_ours
    finally:
        os.close(as_in_a_fork)
