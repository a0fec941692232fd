"""Stores tables as folders of Parquet files.

    <root>/tables/<project>/<table>/table.json            columns and partition columns
    <root>/tables/<project>/<table>/data/dt=1/<upload>/   the blocks of one committed upload, a Parquet file each
    <root>/uploads/<upload>/upload.json, blocks/          an uncommitted upload

A commit is one rename of `blocks` into the table, so its rows become visible together, also if the service
crashes. An upload is committed if its blocks are in the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pai_sdk._core.files import replace_file, sync_folder
from pai_sdk._data.trace.types import trace_schema
from pai_sdk._service.odps.table_errors import TableError, no_such_table

if TYPE_CHECKING:
    import pyarrow as pa

    from pai_sdk._service.odps.statements import Statement

_NAME = re.compile(r"\w{1,128}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{32}")
_MAX_BLOCKS = 20_000
_MAX_DOWNLOADS = 1_000
_UPLOAD_LIFE_S = 24 * 3600.0
_GROUP_BYTES = 16 << 20
_MAX_ROWS_PER_GROUP = 1 << 20
_ROWS_PER_BATCH = 16_384


@dataclass(frozen=True)
class Table:
    """A table; columns are name to type of MaxCompute."""

    project: str
    name: str
    folder: Path
    columns: Mapping[str, str]
    partition_columns: Mapping[str, str]
    table_id: str  # changes if the table is dropped and created again
    lifecycle: int | None  # days, as in the statement; the service deletes no rows

    @cached_property
    def schema(self) -> pa.Schema:
        """Returns the columns without partition columns."""
        return trace_schema(self.columns)

    @property
    def data(self) -> Path:
        """Returns the folder of the rows, which DuckDB and pyarrow can read as a data set."""
        return self.folder / "data"

    def partition_folder(self, partition: Mapping[str, str]) -> Path:
        """Returns the folder of a partition, or of the complete table for an empty partition."""
        partition = {name.lower(): value for name, value in partition.items()}
        # Tables of earlier versions may have names with capital letters.
        missing = [name for name in self.partition_columns if name.lower() not in partition]
        if missing or len(partition) != len(self.partition_columns):
            names = ", ".join(self.partition_columns) or "none"
            raise TableError(400, "ODPS-0110031", f"The table's partition columns are: {names}.")
        return self.data.joinpath(*(f"{name}={partition[name.lower()]}" for name in self.partition_columns))


@dataclass(frozen=True)
class UploadSession:
    """An upload session."""

    upload_id: str
    table: Table
    partition: Mapping[str, str]
    folder: Path  # until it is committed
    overwrite: bool  # the commit replaces the rows of the partition

    @property
    def target(self) -> Path:
        """Returns the folder in the table to which its blocks are moved."""
        return self.table.partition_folder(self.partition) / self.upload_id

    @property
    def is_committed(self) -> bool:
        """Returns True if its rows are visible."""
        return self.target.is_dir()

    def block_ids(self) -> list[int]:
        """Returns the ids of the stored blocks."""
        folder = self.target if self.is_committed else self.folder / "blocks"
        return sorted(int(path.stem) for path in folder.glob("*.parquet"))


@dataclass(frozen=True)
class DownloadSession:
    """A download session: the files that a partition had at its start."""

    download_id: str
    table: Table
    partition: Mapping[str, str]
    paths: tuple[Path, ...]
    rows: int


class TableStore:
    """Tables in a folder. Thread-safe within one process.

    `_lock` guards changes to the set of files of a table: creation, drop and commit. Blocks are written without
    it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._downloads: OrderedDict[str, DownloadSession] = OrderedDict()
        self._remove_old_uploads()

    @property
    def drafts(self) -> Path:
        """Returns a folder for temporary files, on the disk of the tables."""
        folder = self._root / "uploads"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # ---- tables and partitions

    def create(self, project: str, statement: Statement, *, owner: str = "") -> bool:
        """Creates a table and returns whether it is new; `owner` is empty for the service's own key."""
        folder = self._folder(project, statement.table)
        # `table.json` is written last: a folder without it is no table, for example after a crash.
        with self._lock:
            if (folder / "table.json").exists():
                return False
            (folder / "data").mkdir(parents=True, exist_ok=True)
            metadata = {
                "id": uuid.uuid4().hex,
                "owner": owner,
                "columns": dict(statement.columns),
                "partitions": dict(statement.partition_columns),
                "lifecycle": statement.lifecycle,
                "properties": dict(statement.properties),
            }
            # Atomic: readers do not acquire the lock.
            replace_file(folder / "table.json", json.dumps(metadata, indent=1), mode=0o600)
            return True

    def table(self, project: str, name: str) -> Table:
        """Reads a table."""
        folder = self._folder(project, name)
        try:
            metadata = json.loads((folder / "table.json").read_text())
        except FileNotFoundError:
            raise no_such_table(project, name) from None
        fields = metadata["columns"], metadata["partitions"], metadata["id"], metadata["lifecycle"]
        return Table(project, name.lower(), folder, *fields)

    def owner(self, project: str, name: str) -> str | None:
        """Returns the user who owns a table, empty for the service's own key; None if there is no such table."""
        try:
            metadata = json.loads((self._folder(project, name) / "table.json").read_text())
        except FileNotFoundError:
            return None
        return str(metadata.get("owner", ""))

    def tables(self, project: str) -> list[str]:
        """Returns the names of all tables of a project."""
        return sorted(path.parent.name for path in self._root.glob(f"tables/{_checked(project)}/*/table.json"))

    def drop(self, project: str, name: str) -> bool:
        """Deletes a table and its rows; returns whether it existed."""
        folder = self._folder(project, name)
        with self._lock:
            if not folder.exists():
                return False
            trash = folder.with_name(f".{uuid.uuid4().hex}")
            # A name with a dot is no table. Deleting under the lock would block commits of other tables.
            folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)
        return True

    def add_partition(self, table: Table, partition: Mapping[str, str]) -> bool:
        """Creates a partition; returns whether it is new."""
        folder = table.partition_folder(partition)
        with self._lock:
            is_new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            return is_new

    def remove_partition(self, table: Table, partition: Mapping[str, str]) -> bool:
        """Deletes a partition and its rows; returns whether it existed."""
        folder = table.partition_folder(partition)
        with self._lock:
            exists = folder.exists()
            shutil.rmtree(folder, ignore_errors=True)
            return exists

    def partitions(self, table: Table) -> list[dict[str, str]]:
        """Returns all partitions of a table."""
        if not table.partition_columns:
            raise TableError(400, "ODPS-0110031", f"{table.project}.{table.name} is not a partitioned table.")
        folders = table.data.glob("/".join(f"{name}=*" for name in table.partition_columns))
        parts = [path.relative_to(table.data).parts for path in folders]
        return [dict(part.split("=", 1) for part in each) for each in sorted(parts)]

    # ---- uploads

    def start_upload(
        self, table: Table, partition: Mapping[str, str], *, overwrite: bool = False, create: bool = False
    ) -> UploadSession:
        """Starts an upload session; raises if the partition does not exist and `create` is False."""
        # Also at each start of an upload, since a service may run for months.
        self._remove_old_uploads()
        if create:
            self.add_partition(table, partition)
        if not table.partition_folder(partition).exists():
            raise _no_partition(partition)
        upload_id = uuid.uuid4().hex
        folder = self._root / "uploads" / upload_id
        (folder / "blocks").mkdir(parents=True)
        metadata = {
            "project": table.project,
            "table": table.name,
            "table_id": table.table_id,
            "partition": dict(partition),
            "overwrite": overwrite,
        }
        replace_file(folder / "upload.json", json.dumps(metadata), mode=0o600)
        return UploadSession(upload_id, table, partition, folder, overwrite)

    def _remove_old_uploads(self) -> None:
        """Deletes uploads older than a day: committed ones, and those of writers that crashed."""
        oldest = time.time() - _UPLOAD_LIFE_S
        for metadata_file in self._root.glob("uploads/*/upload.json"):
            with contextlib.suppress(FileNotFoundError):
                if metadata_file.stat().st_mtime < oldest:
                    shutil.rmtree(metadata_file.parent, ignore_errors=True)

    def upload(self, upload_id: str) -> UploadSession:
        """Reads an upload session, committed or not."""
        folder = self._root / "uploads" / upload_id
        if not _ID.fullmatch(upload_id) or not (folder / "upload.json").exists():
            raise _no_upload(upload_id)
        metadata = json.loads((folder / "upload.json").read_text())
        table = self.table(metadata["project"], metadata["table"])
        if table.table_id != metadata["table_id"]:
            raise TableError(
                404, "NoSuchUpload", f"The table of upload {upload_id} was dropped and created again."
            )
        return UploadSession(upload_id, table, metadata["partition"], folder, metadata["overwrite"])

    def put_block(self, upload: UploadSession, block_id: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Stores a block durably; replaces one with the same id."""
        if not 0 <= block_id < _MAX_BLOCKS:
            raise TableError(400, "InvalidArgument", f"Block ids go from 0 to {_MAX_BLOCKS - 1}.")
        if upload.is_committed:
            raise TableError(400, "StatusConflict", "The upload is committed, and takes no more blocks.")
        # Outside of `blocks`: a commit moves all files of that folder, including those that a crash has left
        # there.
        draft = upload.folder / f"{uuid.uuid4().hex}.draft"
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                _write_parquet(batches, upload.table.schema, file)
                file.flush()
                os.fsync(file.fileno())
            # Synced before the rename: a block that the client was told about must survive a power failure.
            draft.replace(upload.folder / "blocks" / f"{block_id}.parquet")
        except FileNotFoundError:
            raise _no_upload(upload.upload_id) from None  # another request has removed or committed the upload
        finally:
            draft.unlink(missing_ok=True)

    def commit(self, upload: UploadSession) -> None:
        """Makes all blocks visible at once. A repeated commit has no effect."""
        with self._lock:
            if upload.is_committed:
                return
            if not upload.target.parent.is_dir():
                raise _no_partition(upload.partition)  # it was dropped after the upload started
            before = [path for path in upload.target.parent.iterdir() if path.is_dir()] if upload.overwrite else []
            if not (upload.folder / "blocks").is_dir():
                raise _no_upload(upload.upload_id)
            # Entries of the folder first: after a power failure the renamed folder must have all its blocks.
            sync_folder(upload.folder / "blocks")
            (upload.folder / "blocks").rename(upload.target)
            sync_folder(upload.target.parent)
            # Deleted only after the new rows are visible. A crash between leaves both, never none.
            for path in before:
                shutil.rmtree(path, ignore_errors=True)

    # ---- downloads

    def start_download(self, table: Table, partition: Mapping[str, str]) -> DownloadSession:
        """Starts a download session of the visible rows."""
        import pyarrow.parquet as pq

        folder = table.partition_folder(partition)
        if not folder.exists():
            raise _no_partition(partition)
        # Under the lock: a concurrent commit with overwrite must appear completely or not at all.
        with self._lock:
            paths = tuple(sorted(folder.glob("*/*.parquet"), key=_order))
        try:
            rows = sum(pq.read_metadata(path).num_rows for path in paths)
        except FileNotFoundError:
            # The files are read without the lock: a commit with overwrite may have deleted them since.
            raise TableError(409, "StatusConflict", "The rows are being replaced; try again.") from None
        download = DownloadSession(uuid.uuid4().hex, table, partition, paths, rows)
        with self._lock:
            self._downloads[download.download_id] = download
            # Clients do not close download sessions, so the oldest ones are dropped.
            while len(self._downloads) > _MAX_DOWNLOADS:
                self._downloads.popitem(last=False)
        return download

    def download(self, download_id: str) -> DownloadSession:
        """Returns a download session, or raises 404: sessions do not survive a restart of the service."""
        try:
            return self._downloads[download_id]
        except KeyError:
            raise TableError(404, "NoSuchDownload", f"There is no download {download_id[:60]}.") from None

    def rows(
        self, download: DownloadSession, start: int, count: int, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yields rows of a download session, in small tables."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = _selected(download.table.schema, columns)
        for path in download.paths:
            if count <= 0:
                return
            try:
                opened = pq.ParquetFile(path)
            except FileNotFoundError:
                raise TableError(404, "NoSuchDownload", "The rows of this download were replaced.") from None
            with opened as file:
                for group in range(file.num_row_groups):
                    num_rows = file.metadata.row_group(group).num_rows
                    if start >= num_rows or count <= 0:
                        start -= min(start, num_rows)
                        continue
                    for batch in file.iter_batches(_ROWS_PER_BATCH, row_groups=[group], columns=columns):
                        rows = pa.Table.from_batches([batch]).slice(start, count)
                        start -= min(start, batch.num_rows)
                        count -= rows.num_rows
                        if rows.num_rows:
                            yield rows.cast(schema)

    def _folder(self, project: str, name: str) -> Path:
        return self._root / "tables" / _checked(project) / _checked(name).lower()


def _write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Numbers of a training rarely repeat: Parquet would build a dictionary of them, and then discard it.
    string_columns = [field.name for field in schema if pa.types.is_string(field.type)]
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=string_columns) as writer:
        for batch in batches:
            # A row group is encoded in memory, with up to four additional bytes for each value of a list.
            rows = max(1, min(_MAX_ROWS_PER_GROUP, batch.num_rows * _GROUP_BYTES // max(batch.nbytes, 1)))
            writer.write_table(pa.Table.from_batches([batch], schema), row_group_size=rows)
            del batch  # its memory is reserved until the next batch is read


def _selected(schema: pa.Schema, columns: list[str] | None) -> pa.Schema:
    import pyarrow as pa

    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _order(path: Path) -> tuple[float, str, int]:
    """Sorts uploads by the time of their commits, blocks by id."""
    return path.parent.stat().st_mtime, path.parent.name, int(path.stem)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise TableError(400, "ODPS-0130161", f"{name[:130]!r} is not the name of a project or a table.")
    return name


def _no_upload(upload_id: str) -> TableError:
    return TableError(404, "NoSuchUpload", f"There is no upload {upload_id[:60]}.")


def _no_partition(partition: Mapping[str, str]) -> TableError:
    return TableError(404, "NoSuchPartition", f"Partition not found: {_partition_text(partition)}")


def _partition_text(partition: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in partition.items()) or "none was given"
