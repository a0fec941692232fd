"""The database's files."""

from __future__ import annotations

from pathlib import Path

from pai_sdk.service.database import Database


def test_nobody_else_can_read_what_may_hold_secrets(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    path.touch(mode=0o644)  # as an earlier version left it
    database = Database.in_file(path)
    with database.write():
        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    database.close()
    assert modes == dict.fromkeys(("service.db", "service.db-shm", "service.db-wal"), "0o600")
