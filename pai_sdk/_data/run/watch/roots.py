"""The folders that a manager scans for runs, and the ids of the runs.

A root is a prefix, or the folder of event files that a record names. The id of a run is the path of its folder
below the prefix; a run that a record names has the record's id in every root.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pai_sdk._data.run.watch.entry import RunEntry
from pai_sdk._data.run.watch.records import RunRecord
from pai_sdk._data.run.watch.scan import RunFolders, Scan, run_folders
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stores.local import LocalStore, path_of_file_uri
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import PaiError

_QUIET_S = 300.0
"""The interval at which the folder of a finished job is scanned: a user may still move or change it."""


@dataclass
class RunRoot:
    """A folder below which there are runs."""

    folders: RunFolders
    record_id: str = ""  # of the record that names the root; empty for a prefix
    entries: dict[str, RunEntry] = field(default_factory=dict)  # by folder, relative to the root
    error: str = ""  # of the last scan
    links: tuple[str, ...] = ()  # symbolic links below the root, which are not followed
    is_final: bool = False
    not_before: float = 0.0

    @property
    def uri(self) -> str:
        """The URI of the folder, with a `/` at its end."""
        return self.folders.store.uri

    @property
    def is_local(self) -> bool:
        """True for a folder on a local disk."""
        return isinstance(self.folders.store, LocalStore)

    def scan(self, *, everything: bool) -> Scan:
        """Returns the changes since the previous scan; a failure is stored in `error`."""
        try:
            scan = self.folders.scan(everything=everything)
        except Exception as error:  # of any kind: other roots must be scanned
            self.error = str(error) if isinstance(error, PaiError) else f"{type(error).__name__}: {error}"
            return Scan({})
        self.error = "; ".join(scan.problems[:3])
        self.links = scan.links
        self.not_before = time.monotonic() + _QUIET_S if self.is_final else 0.0
        return scan


class RunRoots:
    """All roots of a manager. Used by its background thread only."""

    def __init__(
        self, stores: Iterable[Store], open_store: Callable[[str], Store], is_closed: Callable[[], bool]
    ) -> None:
        self.problems: dict[str, str] = {}  # by record id: why its folder cannot be opened
        self._open_store = open_store
        self._is_closed = is_closed  # ends a scan early
        self._prefixes = [RunRoot(run_folders(store, is_closed)) for store in stores]
        self._of_records: dict[str, RunRoot] = {}
        self._id_of_uri: dict[str, str] = {}
        # By the URIs of records. Cached, because parsing thousands of them takes a tenth of a second in each pass.
        self._folder_uris: dict[str, str] = {}

    def all(self) -> list[RunRoot]:
        """Returns the prefixes, then the folders of records."""
        return [*self._prefixes, *self._of_records.values()]

    def due(self, *, everything: bool) -> list[RunRoot]:
        """Returns the roots to scan now."""
        now = time.monotonic()
        return [root for root in self.all() if everything or root.not_before <= now]

    def update_records(self, records: Mapping[str, RunRecord]) -> tuple[list[RunEntry], bool]:
        """Updates the roots that records name; returns runs no longer named, and whether ids of others changed."""
        with_uri = {record.id: record for record in records.values() if record.uri}
        gone = [root for run_id, root in self._of_records.items() if run_id not in with_uri]
        self._of_records = {run_id: root for run_id, root in self._of_records.items() if run_id in with_uri}
        self.problems = {}
        id_of_uri = {}
        folder_uris, self._folder_uris = self._folder_uris, {}
        for record in with_uri.values():
            uri = folder_uris.get(record.uri) or _folder_uri(record.uri)
            self._folder_uris[record.uri] = uri
            id_of_uri[uri] = record.id
            if not any(uri.startswith(root.uri) for root in self._prefixes):
                self._add_record(record)
        has_other_ids, self._id_of_uri = id_of_uri != self._id_of_uri, id_of_uri
        return [entry for root in gone for entry in root.entries.values()], has_other_ids

    def _add_record(self, record: RunRecord) -> None:
        root = self._of_records.get(record.id)
        if root is None:
            try:
                store = self._open_store(record.uri)
            except Exception as error:  # of any kind: other records must be read
                self.problems[record.id] = f"{record.uri} of {record.id} cannot be opened: {error}"
                return
            root = self._of_records[record.id] = RunRoot(run_folders(store, self._is_closed), record.id)
        is_final = record.ended_at is not None or JobStatus(record.status).is_terminal
        if is_final and not root.is_final:
            root.not_before = 0.0  # scan once more, for the last data of the job
        root.is_final = is_final

    def id_of(self, root: RunRoot, folder: str) -> str:
        """Returns the id of a run, before other runs with an equal id are considered."""
        if root.record_id:
            return root.record_id if folder == "." else f"{root.record_id}/{folder}"
        inner: list[str] = []
        parts = [] if folder == "." else folder.split("/")
        while True:
            record_id = self._id_of_uri.get(root.uri + "".join(f"{part}/" for part in parts))
            if record_id is not None:
                return "/".join([record_id, *reversed(inner)])
            if not parts:
                return folder
            inner.append(parts.pop())


def _folder_uri(uri: str) -> str:
    """Returns the URI of the run's folder, with a `/` at its end, from the URI of the event files."""
    if uri_scheme(uri) in (None, "file"):
        uri = LocalStore(path_of_file_uri(uri) if uri.startswith("file:") else uri).uri
    return uri.rstrip("/").removesuffix("/tensorboard") + "/"
