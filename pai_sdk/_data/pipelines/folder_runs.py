"""Lists the runs of pipelines in a local folder, for a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pai_sdk._data.pipelines.records import RunRecords
from pai_sdk._data.pipelines.rows import run_detail, run_row
from pai_sdk._data.storage.base import checked_path
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk.errors import InvalidInputError, RunNotFoundError, StorageError

_PATTERNS = ("run.json", "runs/*/run.json", "*/runs/*/run.json")
"""Where a run is: the folder is a run, the store of a pipeline, or has the stores of several pipelines."""

_ROOT_ID = "~"  # the id of a run that is the folder itself: browsers take "." out of an address

_MAX_RUNS = 500


class FolderRuns:
    """Reads the runs in a folder. Links that lead out of the folder are not followed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self) -> list[dict[str, Any]]:
        """Returns the newest runs, the newest first: id, pipeline, status, times, and the number of steps."""
        rows = []
        for run_id in self._ids():
            try:
                records = self._records(run_id)
                rows.append(run_row(run_id, records, records.read_run()))
            except (RunNotFoundError, StorageError):
                continue  # it was just removed, may not be read, or is the run.json of something else
        return sorted(rows, key=lambda row: float(row["created_at"]), reverse=True)[:_MAX_RUNS]

    def detail(self, run_id: str) -> dict[str, Any]:
        """Returns a run with its parameters, its steps, and its picture as SVG."""
        records = self._records(run_id)
        return run_detail(run_id, records, records.read_run())

    def _ids(self) -> Iterator[str]:
        for pattern in _PATTERNS:
            for file in self._folder.glob(pattern):
                path = file.parent.relative_to(self._folder).as_posix()
                yield _ROOT_ID if path == "." else path

    def _records(self, run_id: str) -> RunRecords:
        missing = RunNotFoundError(f"there is no run {run_id[:200]!r}", run_id=run_id)
        try:
            folder = self._folder if run_id == _ROOT_ID else self._folder / checked_path(run_id)
        except InvalidInputError:
            raise missing from None
        if not folder.resolve().is_relative_to(self._folder.resolve()):
            raise missing
        return RunRecords(LocalStore(folder, links="inside"))
