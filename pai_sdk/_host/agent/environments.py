"""The virtual environments that jobs with equal requirements share: which are complete, in use, or to be removed.

    <digest>/           an environment; scripts in it have its path, so it is built in its final location
    <digest>/complete   marks it as complete; has its size in bytes, and is touched at each use
    <digest>/made_for   the interpreter that it was built for, and a digest of what was installed there
    <digest>/kept_for   the day on which it can be used, for requirements that are not exact
    <digest>.lock       exclusive for the process that builds or removes it, shared for the jobs that use it

Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pai_sdk._core.files import locked, replace_file
from pai_sdk._host.agent.requirement_lists import EXACT, today

_COMPLETE = "complete"
_INTERPRETER_FILE = "made_for"
_VALID_FOR_FILE = "kept_for"
_RETENTION_S = 30 * 24 * 3600.0
_MAX_BYTES = 20 << 30


def is_complete(environment: Path) -> bool:
    """Returns True if the environment can be used."""
    return (environment / _COMPLETE).exists()


def mark_complete(environment: Path, interpreter: Sequence[str] = (), *, valid_for: str = EXACT) -> None:
    """Marks an environment as complete, after all of its files are written."""
    if valid_for != EXACT:
        record_valid_for(environment, valid_for)
    # The prefix of an interpreter, and the state of its packages.
    if interpreter:
        replace_file(environment / _INTERPRETER_FILE, json.dumps(list(interpreter)), mode=0o666)
    size_bytes = sum(
        entry.lstat().st_size for entry in environment.rglob("*") if entry.is_file() and not entry.is_symlink()
    )
    # Last: the file declares everything else complete.
    replace_file(environment / _COMPLETE, str(size_bytes), mode=0o666)


def record_valid_for(environment: Path, valid_for: str) -> None:
    """Records the day on which an environment can be used."""
    replace_file(environment / _VALID_FOR_FILE, valid_for, mode=0o666)


def record_use(environment: Path) -> None:
    """Records that a job uses an environment; unused ones are removed after a while."""
    # On a full disk the environment is still usable.
    with suppress(OSError):
        os.utime(environment / _COMPLETE)


def prune(
    folder: Path,
    *,
    retention_s: float = _RETENTION_S,
    max_bytes: int = _MAX_BYTES,
    interpreter: Sequence[str] = (),
    keeps_last: bool = True,
    is_used: Callable[[Path], bool] = lambda environment: False,
    dry_run: bool = False,
) -> list[Path]:
    """Removes environments that are unusable or old, then the oldest while all are too large; returns them."""
    # An environment that a job uses stays, whatever its age and size. So does the last used one, if it is usable.
    environments = [
        (*_last_use(path), path) for path in folder.iterdir() if path.is_dir() and not path.is_symlink()
    ]
    total_bytes = 0
    removed: list[Path] = []
    for position, (used_at, size_bytes, path) in enumerate(sorted(environments, reverse=True)):
        total_bytes += size_bytes
        is_old = (position or not keeps_last) and (time.time() - used_at > retention_s or total_bytes > max_bytes)
        if (is_old or _is_superseded(path, interpreter)) and _remove(path, is_used, dry_run=dry_run):
            total_bytes -= size_bytes
            removed.append(path)
    return removed


def _is_superseded(environment: Path, interpreter: Sequence[str]) -> bool:
    """Returns True if no job can use it: its day has passed, or its interpreter was removed or has changed."""
    with suppress(OSError):
        if (environment / _VALID_FOR_FILE).read_text(encoding="utf-8") < today():
            return True
    try:
        prefix, state = json.loads((environment / _INTERPRETER_FILE).read_text(encoding="utf-8"))
        return not Path(prefix).exists() or (
            prefix == interpreter[0] and state != interpreter[1] if interpreter else False
        )
    except (OSError, ValueError, TypeError):
        # Written by an older release: only its age counts.
        return False


def _last_use(environment: Path) -> tuple[float, int]:
    """Returns the time of the last use, and the size; zeros for an incomplete environment."""
    try:
        complete = environment / _COMPLETE
        return complete.stat().st_mtime, int(complete.read_text() or 0)
    except (OSError, ValueError):
        return 0.0, 0


def _remove(environment: Path, is_used: Callable[[Path], bool], *, dry_run: bool) -> bool:
    """Removes an environment, unless a job uses it; returns True if it was removed, or would be."""
    lock = Path(f"{environment}.lock")
    # A folder without a lock file is not one of these environments.
    if not lock.exists():
        return False
    with locked(lock, waits=False) as has_lock:
        is_unused = has_lock and not is_used(environment)
        if is_unused and not dry_run:
            # First, so that an interrupted removal leaves no environment that counts as complete.
            (environment / _COMPLETE).unlink(missing_ok=True)
            # The lock's file stays: a process may be waiting for this very lock.
            shutil.rmtree(environment, ignore_errors=True)
        return is_unused
