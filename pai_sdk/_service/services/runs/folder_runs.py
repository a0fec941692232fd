"""The runs of a folder, which is only read; its trainings write it."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._data.logs.reader import InstanceLog, LogReader, OpenLog, OpenLogs
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stores.local import LocalStore, path_of_file_uri
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.runs.on_demand_manager import OnDemandManager, loaded
from pai_sdk._service.services.runs.responses import ResponseCache, RowCache
from pai_sdk._service.services.runs.source import (
    NO_LOG,
    ROOT_FOLDER,
    RunMark,
    checkpoint_marks,
    folders_in,
    is_within,
)
from pai_sdk._service.settings import Pace
from pai_sdk._service.wire_errors import WireError
from pai_sdk.errors import RunNotFoundError

if TYPE_CHECKING:
    from pai_sdk._data.run.watch.manager import RunManager

_GROWS_S = 120.0  # a log with a more recent change counts as open
_MAX_OPEN_LOGS = 128
_MAX_INSTANCES = 1000


class FolderRuns:
    """The runs below a folder or URI, with logs and checkpoints if these are local."""

    def __init__(self, prefix: str | Path, *, max_stream_s: float = 3600.0) -> None:
        self.responses = ResponseCache()
        self.rows = RowCache()
        self.max_stream_s = max_stream_s
        self.pace = Pace()
        self.is_closing = False
        self._prefix = prefix
        is_local = isinstance(prefix, Path) or uri_scheme(prefix) in (None, "file")
        self._root = _local_path(str(prefix)) if is_local else None
        self._manager = OnDemandManager(self._new_manager)
        self._logs: OpenLogs[tuple[tuple[Path, int], ...]] = OpenLogs(_MAX_OPEN_LOGS)
        # Indices of the merged lines of several instances.
        self._orders = tempfile.TemporaryDirectory(prefix="pai-ui-")

    @property
    def manager(self) -> RunManager:
        """Returns the running manager."""
        return self._manager.get()

    def close(self) -> None:
        """Stops the manager and all streams."""
        self.is_closing = True
        self._manager.close()
        self._orders.cleanup()

    def finished_at(self, run_id: str | None) -> float:
        """Returns minus infinity: folders have no jobs."""
        return float("-inf")

    def visible_to(self, principal: Principal) -> FolderRuns:
        """Returns all runs: every user of the page may see the folder."""
        return self

    def log(self, run_id: str, instance: str | None) -> LogReader:
        """Opens the log of a run: the files `*.log` of its folder `logs`; raises WireError if it has none."""
        folder = self._folder_of(run_id)
        files = {} if folder is None else self._log_files(Path(RunLayout(str(folder)).logs))
        if instance is not None:
            files = {path: file_stat for path, file_stat in files.items() if path.stem == instance}
        if not files:
            description = f"a log of {instance[:100]!r}" if instance is not None else "a log here"
            raise WireError(404, NO_LOG, f"Run {run_id[:200]!r} has no {description}.")
        # By inodes: a new training in this folder replaces the files, and a reader starts over.
        epoch = blake2b(
            repr([file_stat.st_ino for file_stat in files.values()]).encode(), digest_size=8
        ).hexdigest()
        is_open = any(time.time() - file_stat.st_mtime < _GROWS_S for file_stat in files.values())
        return LogReader(self._open(files), is_open=is_open, epoch=epoch)

    def files(self, run_id: str) -> Mapping[str, Store]:
        """Returns the folder of a run and its subfolders, if they are local."""
        folder = self._folder_of(run_id)
        if folder is None or self._root is None or not is_within(folder, self._root):
            return {}
        root = LocalStore(folder.resolve(), links="inside")
        return {ROOT_FOLDER: root, **folders_in(folder, self._root)}

    def queue_positions(self, run_ids: Collection[str]) -> Mapping[str, tuple[int, str]]:
        """Returns nothing: folders have no queue."""
        return {}

    def marks(self, run_id: str) -> Sequence[RunMark]:
        """Returns the checkpoints of a run."""
        folder = self._folder_of(run_id)
        if folder is None or self._root is None:
            return []
        return [*checkpoint_marks(Path(RunLayout(str(folder)).checkpoints), self._root)]

    def _new_manager(self) -> RunManager:
        from pai_sdk._data.run.watch.manager import RunManager

        source = self._prefix if self._root is None else LocalStore(self._root, links="inside")
        return RunManager(source, refresh_s=0.5).start()

    def _folder_of(self, run_id: str) -> Path | None:
        """Returns the folder of a run; None if it is not local."""
        try:
            uri = loaded(self).run(run_id).brief.uri
        except RunNotFoundError as error:
            raise WireError(404, "RUN_NOT_FOUND", f"{str(error)[:500]}.") from error
        if uri_scheme(uri) not in (None, "file"):
            return None
        path = _local_path(uri)
        return path.parent if path.name == "tensorboard" else path

    def _log_files(self, folder: Path) -> dict[Path, os.stat_result]:
        """Returns the logs in a folder, by name. Skips links, and a folder outside of the watched one."""
        logs: dict[Path, os.stat_result] = {}
        if self._root is None or not is_within(folder, self._root):
            return logs
        try:
            # By the resolved path: a link that is replaced after the check above has no effect.
            with os.scandir(folder.resolve()) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    file_stat, path = entry.stat(follow_symlinks=False), Path(entry.path)
                    is_log = entry.name.endswith(".log") and stat.S_ISREG(file_stat.st_mode)
                    # The reader opens these files with the log, so they must not be links either.
                    sidecars = [path.with_suffix(suffix) for suffix in (".times", ".cuts")]
                    if (
                        is_log
                        and not any(sidecar.is_symlink() for sidecar in sidecars)
                        and len(logs) < _MAX_INSTANCES
                    ):
                        logs[path] = file_stat
        except OSError:
            return {}
        return logs

    def _open(self, files: dict[Path, os.stat_result]) -> OpenLog:
        key = tuple((path, file_stat.st_ino) for path, file_stat in files.items())

        def open_log() -> OpenLog:
            order = Path(self._orders.name, f"{time.monotonic_ns()}.order")
            return OpenLog([InstanceLog(path, makes_cuts=False) for path in files], order)

        log = self._logs.get(key, open_log)
        if log.is_truncated:
            self._logs.forget(lambda cached: cached == key)
            log = self._logs.get(key, open_log)
        return log


def _local_path(uri: str) -> Path:
    return Path(path_of_file_uri(uri) if uri.startswith("file:") else uri).expanduser()
