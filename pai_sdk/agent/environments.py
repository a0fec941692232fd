"""The virtual environments that jobs with the same requirements share: which are whole, used, or to be removed.

    <digest>/           an environment; scripts in it carry its path, so it is built in its place
    <digest>/complete   it is whole; holds its size in bytes, and was touched when a job used it last
    <digest>/made_for   the interpreter that it was made for, and a digest of what was installed there
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

from pai_sdk.agent.requirement_lists import EXACT, today
from pai_sdk.base.files import locked, replace_file

__all__ = ["is_complete", "mark_complete", "note_kept_for", "note_use", "prune"]

_COMPLETE = "complete"
_MADE_FOR = "made_for"
_KEPT_FOR = "kept_for"
_KEPT_S = 30 * 24 * 3600.0
_KEPT_BYTES = 20 << 30


def is_complete(environment: Path) -> bool:
    """Return whether it can be used."""
    return (environment / _COMPLETE).exists()


def mark_complete(environment: Path, made_for: Sequence[str] = (), *, kept_for: str = EXACT) -> None:
    """It can be used from now on.

    Args:
        environment: the environment.
        made_for: the prefix of an interpreter, and the state of its packages.
        kept_for: how long it can be used, see `requirement_lists`.
    """
    if kept_for != EXACT:
        note_kept_for(environment, kept_for)
    if made_for:
        replace_file(environment / _MADE_FOR, json.dumps(list(made_for)), mode=0o666)
    size_bytes = sum(
        entry.lstat().st_size for entry in environment.rglob("*") if entry.is_file() and not entry.is_symlink()
    )
    replace_file(environment / _COMPLETE, str(size_bytes), mode=0o666)


def note_kept_for(environment: Path, kept_for: str) -> None:
    """It can be used on this day only."""
    replace_file(environment / _KEPT_FOR, kept_for, mode=0o666)


def note_use(environment: Path) -> None:
    """A job uses it; one that is not used for long is removed."""
    with suppress(OSError):  # on a full disk it can be used all the same
        os.utime(environment / _COMPLETE)


def prune(
    folder: Path,
    *,
    kept_s: float = _KEPT_S,
    kept_bytes: int = _KEPT_BYTES,
    made_for: Sequence[str] = (),
    keeps_last: bool = True,
    is_used: Callable[[Path], bool] = lambda environment: False,
    dry_run: bool = False,
) -> list[Path]:
    """Remove what can no longer be used, what was not used for long, and the oldest if all are too large together.

    One that a job uses stays, whatever its age and size; so does the one that was used last, if it can be used.

    Args:
        folder: where environments lie.
        kept_s: how long an unused environment is kept.
        kept_bytes: how much they may take together.
        made_for: the interpreter that makes environments here now, and the state of its packages. Those for
            another state of this interpreter, or for one that is gone, can no longer be used.
        keeps_last: whether the one that was used last stays, however old and large it is.
        is_used: asked about one that is to be removed, for users that cannot hold its lock.
        dry_run: remove nothing.

    Returns:
        Those that were removed.
    """
    found = [(*_last_use(path), path) for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    total_bytes = 0
    removed: list[Path] = []
    for place, (used_at, size_bytes, path) in enumerate(sorted(found, reverse=True)):
        total_bytes += size_bytes
        is_old = (place or not keeps_last) and (time.time() - used_at > kept_s or total_bytes > kept_bytes)
        if (is_old or _is_superseded(path, made_for)) and _remove(path, is_used, dry_run=dry_run):
            total_bytes -= size_bytes
            removed.append(path)
    return removed


def _is_superseded(environment: Path, made_for: Sequence[str]) -> bool:
    """Return whether no job can use it any more: its day is over, or its interpreter is gone or has changed."""
    with suppress(OSError):
        if (environment / _KEPT_FOR).read_text(encoding="utf-8") < today():
            return True
    try:
        prefix, state = json.loads((environment / _MADE_FOR).read_text(encoding="utf-8"))
        return not Path(prefix).exists() or (prefix == made_for[0] and state != made_for[1] if made_for else False)
    except (OSError, ValueError, TypeError):
        return False  # made by an older release: only its age counts


def _last_use(environment: Path) -> tuple[float, int]:
    """Return when it was used last, and its size; what is not whole was never used."""
    try:
        complete = environment / _COMPLETE
        return complete.stat().st_mtime, int(complete.read_text() or 0)
    except (OSError, ValueError):
        return 0.0, 0


def _remove(environment: Path, is_used: Callable[[Path], bool], *, dry_run: bool) -> bool:
    """Remove it, unless a job uses it; whether it was removed, or would be."""
    lock = Path(f"{environment}.lock")
    if not lock.exists():  # not one of these environments
        return False
    with locked(lock, waits=False) as is_ours:
        is_unused = is_ours and not is_used(environment)
        if is_unused and not dry_run:
            (environment / _COMPLETE).unlink(missing_ok=True)
            # The lock's file stays: a process may be waiting for this very lock.
            shutil.rmtree(environment, ignore_errors=True)
        return is_unused
