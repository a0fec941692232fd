"""The runs of a folder that nobody but its trainings writes to: it is only read."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.errors import RunNotFoundError
from pai_sdk.logs.reader import InstanceLog, LogReader, OpenLog, OpenLogs
from pai_sdk.run.report.layout import RunLayout
from pai_sdk.service.identity.principal import Principal
from pai_sdk.service.runs.kept_manager import KeptManager, loaded
from pai_sdk.service.runs.responses import ResponseCache, RowCache
from pai_sdk.service.runs.source import NO_LOG, WHOLE_FOLDER, RunMark, checkpoint_marks, folders_in, is_inside
from pai_sdk.service.wire_errors import WireError
from pai_sdk.storage.base import Store
from pai_sdk.storage.stores.local import LocalStore, path_of_file_uri
from pai_sdk.storage.uri import uri_scheme

if TYPE_CHECKING:
    from pai_sdk.run.watch.manager import RunManager

__all__ = ["FolderRuns"]

_GROWS_S = 120.0  # a log that was written to so recently may be written to again
_KEPT_LOGS = 128
_MOST_INSTANCES = 1000


class FolderRuns:
    """The runs below a folder, with the logs and checkpoints beside their event files, where those are local.

    Args:
        prefix: the folder, or its URI.
        longest_stream_s: see `RunSource`.
    """

    def __init__(self, prefix: str | Path, *, longest_stream_s: float = 3600.0) -> None:
        self.responses = ResponseCache()
        self.rows = RowCache()
        self.longest_stream_s = longest_stream_s
        self.is_closing = False
        self._prefix = prefix
        is_local = isinstance(prefix, Path) or uri_scheme(prefix) in (None, "file")
        self._root = _local_path(str(prefix)) if is_local else None
        self._manager = KeptManager(self._new_manager)
        self._logs: OpenLogs[tuple[tuple[Path, int], ...]] = OpenLogs(_KEPT_LOGS)
        self._orders = tempfile.TemporaryDirectory(prefix="pai-ui-")  # of the lines of several instances

    @property
    def manager(self) -> RunManager:
        """The manager, started."""
        return self._manager.get()

    def close(self) -> None:
        """Stop the manager and all streams."""
        self.is_closing = True
        self._manager.close()
        self._orders.cleanup()

    def finished_at(self, run_id: str | None) -> float:
        """Folders have no jobs."""
        return float("-inf")

    def seen_by(self, principal: Principal) -> FolderRuns:
        """All of them: who may open the page may see the folder."""
        return self

    def log(self, run_id: str, instance: str | None) -> LogReader:
        """The log of a run: the files `*.log` of its folder `logs`.

        Raises:
            WireError: there is no such run, or it has no such log.
        """
        folder = self._folder_of(run_id)
        files = {} if folder is None else self._log_files(Path(RunLayout(str(folder)).logs))
        if instance is not None:
            files = {path: facts for path, facts in files.items() if path.stem == instance}
        if not files:
            what = f"a log of {instance[:100]!r}" if instance is not None else "a log here"
            raise WireError(404, NO_LOG, f"Run {run_id[:200]!r} has no {what}.")
        epoch = blake2b(repr([facts.st_ino for facts in files.values()]).encode(), digest_size=8).hexdigest()
        is_open = any(time.time() - facts.st_mtime < _GROWS_S for facts in files.values())
        return LogReader(self._open(files), is_open=is_open, epoch=epoch)

    def files(self, run_id: str) -> Mapping[str, Store]:
        """The folder of a run, and those within it, if it is on this machine.

        Raises:
            WireError: there is no such run.
        """
        folder = self._folder_of(run_id)
        if folder is None or self._root is None or not is_inside(folder, self._root):
            return {}
        whole = LocalStore(folder.resolve(), links="inside")
        return {WHOLE_FOLDER: whole, **folders_in(folder, self._root)}

    def queue_places(self) -> Mapping[str, int]:
        """Folders have no queue."""
        return {}

    def marks(self, run_id: str) -> Sequence[RunMark]:
        """The checkpoints of a run.

        Raises:
            WireError: there is no such run.
        """
        folder = self._folder_of(run_id)
        if folder is None or self._root is None:
            return []
        return [*checkpoint_marks(Path(RunLayout(str(folder)).checkpoints), self._root)]

    def _new_manager(self) -> RunManager:
        from pai_sdk.run.watch.manager import RunManager

        place = self._prefix if self._root is None else LocalStore(self._root, links="inside")
        return RunManager(place, refresh_s=0.5).start()

    def _folder_of(self, run_id: str) -> Path | None:
        """The folder of a run; None where it is not local."""
        try:
            uri = loaded(self).run(run_id).brief.uri
        except RunNotFoundError as error:
            raise WireError(404, "RUN_NOT_FOUND", f"{str(error)[:500]}.") from error
        if uri_scheme(uri) not in (None, "file"):
            return None
        path = _local_path(uri)
        return path.parent if path.name == "tensorboard" else path

    def _log_files(self, folder: Path) -> dict[Path, os.stat_result]:
        """The logs in a folder, by name. Links are left out, and a folder that leads out of the watched one."""
        found: dict[Path, os.stat_result] = {}
        if self._root is None or not is_inside(folder, self._root):
            return found
        try:
            # By the real path: a link that is changed after this check does not lead elsewhere.
            with os.scandir(folder.resolve()) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    facts, path = entry.stat(follow_symlinks=False), Path(entry.path)
                    is_log = entry.name.endswith(".log") and stat.S_ISREG(facts.st_mode)
                    # What lies beside a log is read with it.
                    beside = [path.with_suffix(suffix) for suffix in (".times", ".cuts")]
                    if is_log and not any(one.is_symlink() for one in beside) and len(found) < _MOST_INSTANCES:
                        found[path] = facts
        except OSError:
            return {}
        return found

    def _open(self, files: dict[Path, os.stat_result]) -> OpenLog:
        key = tuple((path, facts.st_ino) for path, facts in files.items())

        def open_log() -> OpenLog:
            order = Path(self._orders.name, f"{time.monotonic_ns()}.order")
            return OpenLog([InstanceLog(path, makes_cuts=False) for path in files], order)

        log = self._logs.get(key, open_log)
        if log.is_truncated:
            self._logs.forget(lambda known: known == key)
            log = self._logs.get(key, open_log)
        return log


def _local_path(uri: str) -> Path:
    return Path(path_of_file_uri(uri) if uri.startswith("file:") else uri).expanduser()
