"""Backups of a service: made while it runs, verified before anything of them is restored.

    BACKUP/backup.json            every file with its size and SHA-256; written last: without it, no backup
    BACKUP/data/service.json      the keys of the service
    BACKUP/data/executor.json     the executor of an embedded service, if not processes
    BACKUP/data/service.db        the jobs, also of a service with PostgreSQL
    BACKUP/data/jobs/, tables/    logs, states and outputs of jobs; tables
    BACKUP/data/objects/          the index of the objects, and the content of the large ones, unless they
    are in an
                                  external store

The folder `ray` is left out, because it connects a service to its jobs in a Ray cluster. A service on a copy would
end the jobs of the original service, and read the logs of both.

The order of the copies guarantees that a later part contains all that an earlier part refers to: first the jobs,
then their folders, then the objects, which received a job's outputs before its end was recorded. Of the objects,
the index is copied first. Large contents may be removed meanwhile: then index and contents are copied again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Integer, delete, func, insert, select

from pai_sdk._core.files import open_plain, replace_file, sync_folder
from pai_sdk._core.version import __version__
from pai_sdk._host.agent.sandbox import TRASH_PREFIX, Sandbox
from pai_sdk._service.oss.external.claim import CLAIM_FILE, read_claimed_uri
from pai_sdk._service.oss.external.external_blobs import is_external
from pai_sdk._service.oss.object_rows import is_row
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.folder import read_info
from pai_sdk._service.state.models import Base, Job
from pai_sdk._service.state.sql_engine import display_url, postgres_engine, postgres_url, readable_start_errors
from pai_sdk.errors import InvalidInputError, PaiError, Problem

_MANIFEST = "backup.json"
_DATA = "data"
_FORMAT = 1
_CHUNK_BYTES = 1 << 20
_ROWS = 1000
_ROUNDS = 10
_JOBS, _OBJECTS, _INDEX = "service.db", "objects", "objects/objects.db"
_DATABASE_FILE = "database"
_EXECUTOR = "executor.json"
_SMALL_FILES = ("service.json", _DATABASE_FILE, _EXECUTOR, f"{_OBJECTS}/{CLAIM_FILE}")

Report = Callable[[str], None]


@dataclass(frozen=True)
class Contents:
    """The contents of a backup."""

    made_at: float  # seconds since 1970, UTC
    version: str  # the release of pai-sdk that made it
    endpoint: str  # of the service at that time
    files: int
    size_bytes: int  # of all files together
    objects_uri: str = ""  # the external store with the large contents of objects, which are not in the backup


# ---- making ------------------------------------------------------------------------------------------------


def back_up(
    root: Path, target: Path, *, database_url: str | None = None, report: Report = lambda text: None
) -> Contents:
    """Copies all data of a service, which may run meanwhile.

    Args:
        root: the data folder.
        target: a folder that does not exist yet, or is empty.
        database_url: PostgreSQL, if the service stores its jobs there.
        report: called with the name of each step.
    """
    info = read_info(root)
    if info is None:
        raise InvalidInputError(
            [Problem("data", f"{root} is not the data folder of a service", "name its folder")]
        )
    _check_database(root, database_url)
    _require_empty(target, "target")
    target.mkdir(parents=True, exist_ok=True)
    # It contains the keys.
    target.chmod(0o700)
    data = target / _DATA
    data.mkdir(mode=0o700)
    digests: dict[str, tuple[int, str]] = {}
    report("jobs")
    _copy_jobs(root, data, database_url)
    for name in _SMALL_FILES:
        if (root / name).exists():
            _copy(root / name, data / name)
    # A running job is copied in its current state. In a restored service it has no processes, so it ends as after
    # the loss of its machine.
    report("folders of jobs")
    for relative in _files_of_jobs(root):
        digests.update(_copy_if_present(root, data, relative))
    report("tables")
    for relative in _files(root, root / "tables"):
        digests.update(_copy_if_present(root, data, relative))
    report("objects")
    digests.update(_copy_objects(root, data))
    for name in (_JOBS, _INDEX, *_SMALL_FILES):
        if (data / name).exists():
            # Hashed at the end: until then, SQLite still changes these files.
            digests[name] = _digest_or_none(data / name) or (0, "")
    size_bytes = sum(size for size, _ in digests.values())
    contents = Contents(
        time.time(), __version__, info.endpoint, len(digests), size_bytes, read_claimed_uri(data / _OBJECTS)
    )
    sync_folder(data)
    # Written last: a folder without it is not a backup.
    manifest = {"format": _FORMAT, **asdict(contents), "digests": digests}
    replace_file(target / _MANIFEST, json.dumps(manifest, indent=1) + "\n", durable=True, mode=0o600)
    return contents


def _check_database(root: Path, url: str | None) -> None:
    note = root / _DATABASE_FILE
    recorded = note.read_text(encoding="utf-8").strip() if note.exists() else _JOBS
    requested = _JOBS if url is None else display_url(postgres_url(url))
    if recorded != requested:
        raise InvalidInputError([Problem("database", f"the jobs of {root} are in {recorded}, not in {requested}")])


def _copy_jobs(root: Path, data: Path, url: str | None) -> None:
    if url is None:
        _copy_sqlite(root / _JOBS, data / _JOBS)
        return
    copy = Database.in_file(data / _JOBS)
    with closing(copy), _postgres(url) as source, copy.write() as session:
        _copy_rows(source, session.connection())
    _merge_journal(data / _JOBS)


@contextmanager
def _postgres(url: str) -> Iterator[Connection]:
    """Yields a connection with a snapshot of the database."""
    parsed = postgres_url(url)
    engine = postgres_engine(parsed)
    options: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    try:
        with (
            readable_start_errors(display_url(parsed)),
            engine.connect().execution_options(**options) as connection,
        ):
            yield connection
    finally:
        engine.dispose()


def _copy_rows(source: Connection, target: Connection) -> None:
    """Copies all rows of all tables in batches, parents first."""
    for table in Base.metadata.sorted_tables:
        rows = source.execution_options(stream_results=True).execute(select(table)).mappings()
        while some := rows.fetchmany(_ROWS):
            target.execute(insert(table), [dict(row) for row in some])


def _copy_sqlite(source: Path, target: Path) -> None:
    """Creates a consistent copy of a database that may be written to meanwhile."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # One step of the backup API copies all pages in a single read transaction, so the copy is consistent.
    old = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=60)
    with closing(old), closing(sqlite3.connect(target)) as new:
        old.backup(new)
    _merge_journal(target)


def _merge_journal(path: Path) -> None:
    """Merges SQLite's journal into the database file: a backup is verified file by file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


def _files_of_jobs(root: Path) -> Iterator[str]:
    """Yields the files of the folders of jobs, without copies of inputs and installed packages."""
    for folder in sorted((root / "jobs").iterdir()) if (root / "jobs").is_dir() else ():
        if not folder.name.startswith(TRASH_PREFIX):
            yield from _files(root, folder, without=Sandbox(folder).folders_to_remove(saved_outputs=()))


def _files(root: Path, folder: Path, *, without: list[Path] | None = None) -> Iterator[str]:
    excluded = set(without or ())
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if Path(parent, name) not in excluded]
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in (*files, *links):
            yield str(Path(parent, name).relative_to(root))


def _copy_if_present(root: Path, data: Path, relative: str) -> dict[str, tuple[int, str]]:
    """Copies a file; skips pipes, sockets and files that have disappeared."""
    source, target = root / relative, data / relative
    try:
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.symlink_to(source.readlink())
            return {}
        return {relative: _copy(source, target)} if stat.S_ISREG(source.stat().st_mode) else {}
    except FileNotFoundError:
        return {}


def _copy_objects(root: Path, data: Path) -> dict[str, tuple[int, str]]:
    """Copies the index, then its blobs, until the copies of both match."""
    digests: dict[str, tuple[int, str]] = {}
    blobs: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        (data / _INDEX).unlink(missing_ok=True)
        _copy_sqlite(root / _INDEX, data / _INDEX)
        before, blobs = (
            blobs,
            {f"{_OBJECTS}/blobs/{blob[:2]}/{blob}": state for blob, *state in _blobs(data / _INDEX)},
        )
        for relative, state in blobs.items():
            # Only the bytes that the index refers to count. An appendable blob may have grown since, and a shared
            # blob of an upload may have received more parts: both are copied again.
            if relative not in digests or before.get(relative) != state:
                # Without its old digest, a blob that has disappeared fails this round.
                digests.pop(relative, None)
                digests.update(_copy_if_present(root, data, relative))
        if digests.keys() >= blobs.keys():
            for relative in digests.keys() - blobs.keys():
                (data / relative).unlink()
            return {relative: digests[relative] for relative in blobs}
    raise PaiError(
        "objects were replaced faster than they could be copied; stop the service, and back it up again"
    )


def _blobs(index: Path) -> list[tuple[str, int, float]]:
    """Returns each blob with its bytes in use and, for an unfinished upload, the time of its last part."""
    contents = (
        "SELECT blob, size_bytes, 0 FROM oss_objects "
        "UNION ALL SELECT blob, sum(size_bytes), max(modified_at) FROM oss_parts GROUP BY blob"
    )
    with closing(sqlite3.connect(index)) as connection:
        rows = connection.execute(contents)
        return [(blob, *state) for blob, *state in rows if not is_row(blob) and not is_external(blob)]


# ---- restoring ---------------------------------------------------------------------------------------------


def restore(
    source: Path,
    root: Path,
    *,
    database_url: str | None = None,
    objects_uri: str | None = None,
    report: Report = lambda text: None,
) -> Contents:
    """Creates a data folder from a backup; all checksums are verified before anything is written.

    Args:
        source: the backup.
        root: a folder that does not exist yet, or is empty.
        database_url: an empty PostgreSQL database for the jobs; without it they stay in the folder.
        objects_uri: the external store with the large contents of objects, if there is one.
        report: called with the name of each step.
    """
    contents, digests = _read_manifest(source)
    _check_objects(contents.objects_uri, objects_uri)
    _require_empty(root, "data")
    report("checking the backup")
    damaged = [name for name, digest in digests.items() if _digest_or_none(source / _DATA / name) != digest]
    if damaged:
        problems = [
            Problem(name, "is missing or not what was backed up", "use another backup") for name in damaged
        ]
        raise InvalidInputError(problems)
    report("copying")
    root.parent.mkdir(parents=True, exist_ok=True)
    # Created under another name and renamed when complete: a service would accept a partial folder as complete.
    draft = root.with_name(f".{root.name}.restore")
    # The draft of an interrupted restore.
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source / _DATA, draft, symlinks=True)
    draft.chmod(0o700)
    (draft / _DATABASE_FILE).unlink(missing_ok=True)
    _clear_process(draft / "service.json")
    if database_url is not None:
        report("filling the database")
        _fill_database(draft / _JOBS, database_url)
        # The jobs must exist in one place only.
        (draft / _JOBS).unlink()
        replace_file(draft / _DATABASE_FILE, f"{display_url(postgres_url(database_url))}\n", mode=0o600)
    draft.replace(root)
    sync_folder(root.parent)
    return contents


def _check_objects(recorded: str, requested: str | None) -> None:
    if recorded == (requested.rstrip("/") + "/" if requested else ""):
        return
    problem = f"the large contents of objects are in {recorded}" if recorded else "all contents are in the backup"
    hint = f"give --objects {recorded}" if recorded else "leave out --objects"
    raise InvalidInputError([Problem("objects", problem, hint)])


def _clear_process(service: Path) -> None:
    """Removes the process id of the original service, which may still run and does not use this folder."""
    info = json.loads(service.read_text(encoding="utf-8"))
    replace_file(service, json.dumps({**info, "pid": 0}) + "\n", durable=True, mode=0o600)


def _read_manifest(source: Path) -> tuple[Contents, dict[str, tuple[int, str]]]:
    problem = ""
    try:
        manifest = json.loads((source / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] == _FORMAT:
            contents = Contents(
                **{field.name: manifest[field.name] for field in fields(Contents) if field.name in manifest}
            )
            return contents, {name: (size, digest) for name, (size, digest) in manifest["digests"].items()}
        problem = f"{source} was made by a newer pai-sdk ({manifest.get('version')})"
    except FileNotFoundError:
        problem = f"{source} is not a backup, or an incomplete one: it has no {_MANIFEST}"
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = f"{_MANIFEST} in {source} cannot be read"
    raise InvalidInputError([Problem("backup", problem, "name a folder that `pai-sdk service backup` wrote")])


def _fill_database(jobs: Path, url: str) -> None:
    parsed = postgres_url(url)
    # Migrates the tables of an older release.
    old = Database.in_file(jobs)
    new = Database(postgres_engine(parsed), display_name=display_url(parsed))
    with closing(old), closing(new), old.read() as source, new.write() as target:
        connection = target.connection()
        if connection.scalar(select(func.count()).select_from(Job)):
            raise InvalidInputError(
                [Problem("database", f"{display_url(parsed)} has jobs already", "use an empty one")]
            )
        for table in reversed(Base.metadata.sorted_tables):
            # The initial rows of a new database.
            connection.execute(delete(table))
        _copy_rows(source.connection(), connection)
        for table in Base.metadata.sorted_tables:
            for column in table.primary_key.columns:
                if isinstance(column.type, Integer) and column.autoincrement in (True, "auto"):
                    _continue_numbers(connection, table.name, column)


def _continue_numbers(connection: Connection, table: str, column: Column[Any]) -> None:
    """Sets a sequence so that new rows get numbers after the copied ones."""
    sequence = connection.scalar(select(func.pg_get_serial_sequence(table, column.name)))
    highest = connection.scalar(select(func.max(column)))
    if sequence is not None and highest is not None:
        connection.execute(select(func.setval(sequence, highest)))


# ---- files -------------------------------------------------------------------------------------------------


def _require_empty(folder: Path, where: str) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInputError(
            [Problem(where, f"{folder} is not empty", "name a folder that does not exist yet")]
        )


def _copy(source: Path, target: Path) -> tuple[int, str]:
    """Copies the current bytes of a file; returns their number and SHA-256."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest, remaining_bytes = hashlib.sha256(), 0
    with open_plain(source) as reader, target.open("wb") as writer:
        status = os.fstat(reader.fileno())
        # Only the size at the open is copied: a log may grow faster than it is read.
        size_bytes = remaining_bytes = status.st_size
        while remaining_bytes and (chunk := reader.read(min(_CHUNK_BYTES, remaining_bytes))):
            digest.update(chunk)
            writer.write(chunk)
            remaining_bytes -= len(chunk)
        os.fchmod(writer.fileno(), stat.S_IMODE(status.st_mode))
        writer.flush()
        os.fsync(writer.fileno())
    os.utime(target, (status.st_atime, status.st_mtime))
    return size_bytes - remaining_bytes, digest.hexdigest()


def _digest_or_none(path: Path) -> tuple[int, str] | None:
    try:
        digest = hashlib.sha256()
        with open_plain(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
            return file.tell(), digest.hexdigest()
    except OSError:
        return None
