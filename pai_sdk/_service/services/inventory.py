"""Lists the files in a service's data folder by kind, and removes those that are not needed.

The service is not asked: it may run or not.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pai_sdk._host.agent import environments
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.sandbox import TRASH_PREFIX, Sandbox

_PARTS = {"data": "copied inputs", "python": "packages", "requirements": "packages"}


@dataclass(frozen=True)
class Holding:
    """The disk space of one kind of files."""

    kind: str
    size_bytes: int
    count: int | None  # of jobs, environments or files; None where files are not counted


@dataclass(frozen=True)
class Removal:
    """A folder that was removed, or would be removed; `size_bytes` is its size on disk."""

    description: str
    path: Path
    size_bytes: int


def holdings(root: Path, check: Callable[[], None] = lambda: None) -> list[Holding]:
    """Returns the content of a data folder, each byte under one kind; calls `check` for each folder."""
    size_of = partial(_size_bytes, check=check)
    cache, jobs = root / "cache", root / "jobs"
    cached = [path for path in _folders(cache) if path.name != "pip"]
    job_folders = _folders(jobs)
    logs = [folder / "logs" for folder in job_folders]
    logs_bytes = sum(map(size_of, logs))
    parts = [
        # Small ones are rows of a database.
        Holding("objects", size_of(root / "objects"), None),
        Holding("job folders", size_of(jobs) - logs_bytes, len(job_folders)),
        Holding("logs", logs_bytes, sum(len(list(folder.glob("*.log"))) for folder in logs)),
        Holding("environments", sum(map(size_of, cached)), len(cached)),
        Holding("pip cache", size_of(cache / "pip"), _count_files(cache / "pip")),
        Holding("tables", size_of(root / "tables"), len(_folders(root / "tables"))),
    ]
    service_files = [path for path in _entries(root) if path.is_file()]
    return [*parts, Holding("service", sum(map(_size_bytes, service_files)), len(service_files))]


def clean(root: Path, *, older_than_s: float, dry_run: bool = False) -> Iterator[Removal]:
    """Removes copies in folders of finished jobs, unused environments and pip's downloads; yields the removals."""
    before = time.time() - older_than_s
    # Logs, objects, job outputs and files that a job uses stay.
    for folder in _folders(root / "jobs"):
        if folder.name.startswith(TRASH_PREFIX):
            yield _remove("folder of a deleted job", folder, dry_run=dry_run)
        elif _has_ended(folder, before):
            # Outputs stay: only the service knows whether all of them are saved.
            for part in Sandbox(folder).folders_to_remove(saved_outputs=()):
                yield _remove(f"{_PARTS.get(part.name, part.name)} of job {folder.name}", part, dry_run=dry_run)
    yield from _clean_environments(root / "cache", older_than_s, dry_run=dry_run)
    pip = root / "cache" / "pip"
    if pip.is_dir() and _last_change(pip) < before:
        yield _remove("pip's downloads", pip, dry_run=dry_run)


def _clean_environments(cache: Path, older_than_s: float, *, dry_run: bool) -> Iterator[Removal]:
    if not cache.is_dir():
        return
    sizes = {path: _size_bytes(path) for path in _folders(cache) if path.name != "pip"}
    for path in environments.prune(cache, retention_s=older_than_s, keeps_last=False, dry_run=dry_run):
        yield Removal("environment for requirements", path, sizes.get(path, 0))


def _has_ended(folder: Path, before: float) -> bool:
    """Returns whether a job ended before that time: its processes are gone, and its end is recorded."""
    # Only the recorded state counts: from outside the service, the job's executor is unknown.
    state = Journal(folder / "state").read_state()
    return state is not None and state.phase == "ended" and (state.ended_at or 0) < before


def _remove(description: str, path: Path, *, dry_run: bool) -> Removal:
    removal = Removal(description, path, _size_bytes(path))
    if not dry_run:
        shutil.rmtree(path, ignore_errors=True)
    return removal


def _folders(parent: Path) -> list[Path]:
    return [path for path in _entries(parent) if path.is_dir() and not path.is_symlink()]


def _entries(parent: Path) -> list[Path]:
    try:
        return sorted(parent.iterdir())
    except OSError:
        return []


def _files(path: Path, check: Callable[[], None]) -> Iterator[os.stat_result]:
    """Yields the status of all files below a folder, or of a file; skips those that disappear meanwhile."""
    if path.is_dir() and not path.is_symlink():
        for parent, folders, files in os.walk(path):
            check()
            for name in (*files, *folders):
                try:
                    yield os.lstat(Path(parent, name))
                except OSError:
                    continue
    elif path.exists():
        yield path.lstat()


def _size_bytes(path: Path, check: Callable[[], None] = lambda: None) -> int:
    return sum(file.st_blocks * 512 for file in _files(path, check))


def _count_files(path: Path) -> int:
    return sum(1 for _, _, files in os.walk(path) for _ in files)


def _last_change(path: Path) -> float:
    return max((file.st_mtime for file in _files(path, lambda: None)), default=0.0)
