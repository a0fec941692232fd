"""Opens the state of a service: the database of the jobs, and the object store."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from pai_sdk._core.files import replace_file
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.settings import ServiceSettings
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.folder import DataFolder
from pai_sdk._service.state.lease import Lease
from pai_sdk._service.state.sql_engine import display_url, postgres_engine, postgres_url, readable_start_errors
from pai_sdk.errors import ServiceStartError

_SQLITE_FILE = "service.db"


def open_state(
    settings: ServiceSettings, folder: DataFolder, lease: Lease | None, stack: ExitStack
) -> tuple[Database, ObjectStore]:
    """Returns the database and the object store, closed with the stack. PostgreSQL needs the lease for writes."""
    if settings.database_url is None or lease is None:
        _record_database(folder.root, _SQLITE_FILE)
        database = Database.in_file(folder.database_file)
        stack.callback(database.close)
        with readable_start_errors(str(folder.objects_dir)):
            objects = ObjectStore(
                folder.objects_dir, contents=settings.objects, upload_life_s=settings.upload_life_s
            )
            store = stack.enter_context(objects)
        return database, store
    url = postgres_url(settings.database_url)
    database_name = display_url(url)
    engine = postgres_engine(url)
    stack.callback(engine.dispose)
    with readable_start_errors(database_name):
        _record_database(folder.root, database_name)
        objects = ObjectStore(
            folder.objects_dir, earlier=engine, contents=settings.objects, upload_life_s=settings.upload_life_s
        )
        store = stack.enter_context(objects)
    return Database(engine, display_name=database_name, before_change=lease.require), store


def _record_database(root: Path, database_name: str) -> None:
    """Records the database of the folder: with another one, its jobs would seem to be lost."""
    file = root / "database"
    recorded = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    if not recorded and (root / _SQLITE_FILE).exists():
        # A folder of an older build, which had no other database.
        recorded = _SQLITE_FILE
    if recorded and recorded != database_name:
        how = "without --database" if recorded == _SQLITE_FILE else f"with --database {recorded}"
        raise ServiceStartError(
            f"the jobs of {root} are in {recorded}, not in {database_name}; start the service {how}, "
            f"or use another data folder (or delete {file}, if the jobs were moved)"
        )
    if not file.exists():
        replace_file(file, f"{database_name}\n", mode=0o666)
