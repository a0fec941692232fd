"""The places where a manager looks for runs, and the ids that it gives them.

A place is a prefix, or the folder of event files that a record names. The id of a run is the path of its folder
below the prefix; a run that a record names has the record's id, wherever it is found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pai_sdk.errors import PaiError
from pai_sdk.run.watch.entry import RunEntry
from pai_sdk.run.watch.records import RunRecord
from pai_sdk.run.watch.scan import RunFolders, Scan, run_folders
from pai_sdk.schemas.status import JobStatus
from pai_sdk.storage.base import Store
from pai_sdk.storage.stores.local import LocalStore, path_of_file_uri
from pai_sdk.storage.uri import uri_scheme

__all__ = ["Place", "RunPlaces"]

_QUIET_S = 300.0
"""The interval at which the folder of an ended job is scanned: it may still be moved, or written by hand."""


@dataclass
class Place:
    """A folder below which there are runs.

    Attributes:
        folders: what is scanned.
        record_id: of the record that names it; empty for a prefix.
        entries: the runs by their folders, relative to the place.
        error: why it could not be scanned.
        links: symbolic links in it, which are not followed.
    """

    folders: RunFolders
    record_id: str = ""
    entries: dict[str, RunEntry] = field(default_factory=dict)
    error: str = ""
    links: tuple[str, ...] = ()
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
        """Look for changes; a failure is kept in `error`."""
        try:
            found = self.folders.scan(everything=everything)
        except Exception as error:  # it concerns this place only
            self.error = str(error) if isinstance(error, PaiError) else f"{type(error).__name__}: {error}"
            return Scan({})
        self.error = "; ".join(found.problems[:3])
        self.links = found.links
        self.not_before = time.monotonic() + _QUIET_S if self.is_final else 0.0
        return found


class RunPlaces:
    """All places of a manager. Used by its background thread only.

    Args:
        stores: the prefixes.
        open_store: opens the folder of a record.
        is_closed: ends a scan early.

    Attributes:
        problems: why the folder of a record cannot be opened, by the id of the record.
    """

    def __init__(
        self, stores: Iterable[Store], open_store: Callable[[str], Store], is_closed: Callable[[], bool]
    ) -> None:
        self.problems: dict[str, str] = {}
        self._open_store = open_store
        self._is_closed = is_closed
        self._prefixes = [Place(run_folders(store, is_closed)) for store in stores]
        self._of_records: dict[str, Place] = {}
        self._id_of_uri: dict[str, str] = {}
        self._folder_uris: dict[
            str, str
        ] = {}  # by the URIs of records: to parse thousands takes a tenth of a second

    def all(self) -> list[Place]:
        """The prefixes, then the folders of records."""
        return [*self._prefixes, *self._of_records.values()]

    def due(self, *, everything: bool) -> list[Place]:
        """The places to scan now."""
        now = time.monotonic()
        return [place for place in self.all() if everything or place.not_before <= now]

    def take(self, records: Mapping[str, RunRecord]) -> tuple[list[RunEntry], bool]:
        """Take what the records say about places.

        Returns:
            The runs of places that no record names any more, and whether other runs have other ids now.
        """
        known = {record.id: record for record in records.values() if record.uri}
        gone = [place for run_id, place in self._of_records.items() if run_id not in known]
        self._of_records = {run_id: place for run_id, place in self._of_records.items() if run_id in known}
        self.problems = {}
        id_of_uri = {}
        folder_uris, self._folder_uris = self._folder_uris, {}
        for record in known.values():
            uri = folder_uris.get(record.uri) or _folder_uri(record.uri)
            self._folder_uris[record.uri] = uri
            id_of_uri[uri] = record.id
            if not any(uri.startswith(place.uri) for place in self._prefixes):
                self._take_place(record)
        has_other_ids, self._id_of_uri = id_of_uri != self._id_of_uri, id_of_uri
        return [entry for place in gone for entry in place.entries.values()], has_other_ids

    def _take_place(self, record: RunRecord) -> None:
        place = self._of_records.get(record.id)
        if place is None:
            try:
                store = self._open_store(record.uri)
            except Exception as error:  # it concerns this record only
                self.problems[record.id] = f"{record.uri} of {record.id} cannot be opened: {error}"
                return
            place = self._of_records[record.id] = Place(run_folders(store, self._is_closed), record.id)
        is_final = record.ended_at is not None or JobStatus(record.status).is_terminal
        if is_final and not place.is_final:
            place.not_before = 0.0  # once more: what it wrote last
        place.is_final = is_final

    def id_of(self, place: Place, folder: str) -> str:
        """The id of a run, before others with the same id are looked at."""
        if place.record_id:
            return place.record_id if folder == "." else f"{place.record_id}/{folder}"
        inner: list[str] = []
        parts = [] if folder == "." else folder.split("/")
        while True:
            named = self._id_of_uri.get(place.uri + "".join(f"{part}/" for part in parts))
            if named is not None:
                return "/".join([named, *reversed(inner)])
            if not parts:
                return folder
            inner.append(parts.pop())


def _folder_uri(uri: str) -> str:
    """The URI of the run's folder, with a `/` at its end, from that of its event files."""
    if uri_scheme(uri) in (None, "file"):
        uri = LocalStore(path_of_file_uri(uri) if uri.startswith("file:") else uri).uri
    return uri.rstrip("/").removesuffix("/tensorboard") + "/"
