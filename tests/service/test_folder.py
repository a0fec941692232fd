"""The folder of a service, and who has it."""

from __future__ import annotations

import os
from pathlib import Path

from pai_sdk.service.folder import DataFolder, is_locked


def test_a_program_that_is_just_being_started_holds_no_folder(tmp_path: Path) -> None:
    """Until it is another program, a process that was forked has all that its parent had open, the lock too."""
    root = tmp_path / "data"
    with DataFolder(root) as folder:
        assert folder._lock is not None
        as_in_a_fork = os.dup(folder._lock)
    try:
        assert not is_locked(root)
        with DataFolder(root):
            assert is_locked(root)
    finally:
        os.close(as_in_a_fork)
