"""Moves a folder between two stores: the one engine for uploads, downloads, inputs and outputs.

The listings of both sides and the rows of earlier syncs are read side by side, all sorted by path, so that memory
does not grow with the number of files. Files are moved on the threads of a `TransferPool`.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from pai_sdk._data.storage.base import FileMove, Store, clock_passed
from pai_sdk._data.storage.objects import MD5
from pai_sdk._data.storage.pool import SKIPPED_SUFFIX, TransferPool
from pai_sdk._data.storage.progress import ByteBar, FileShare
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.sync.memory import Moved, SyncMemory, memory_path
from pai_sdk.errors import (
    FileChangedError,
    InvalidInputError,
    ObjectNotFoundError,
    PathConflictError,
    Problem,
    StorageError,
    SyncError,
)

# Attempts for a file that changes while it is read.
_MAX_READS = 4
_MAX_CACHED_FOLDERS = 1000
_DELETE_BATCH = 1000
# `<session>-committed.parquet` of earlier versions, `<session>-<n>blocks-<n>bytes-committed.parquet` of this one.
_COMMIT = re.compile(r"(?P<session>.*rank\d+-\w+-\w+-[0-9a-f]+)(?:-\d+blocks-\d+bytes)?-committed\.parquet")


def committed_by(path: str) -> str | None:
    """Returns the common prefix of the files that a commit of a trace declares complete; None for other files."""
    match = _COMMIT.fullmatch(path)  # `_data/trace/trace_files.py` defines the names
    return match["session"] if match else None


@dataclass
class SyncReport:
    """The result of a sync, or of a dry run.

    Attributes:
        files: files of the source, and its empty folders.
        moved: the number of moved files.
        moved_bytes: their bytes.
        unchanged: the number of files that both sides had already.
        deleted: files of the target that were deleted.
        grown: moved files that grew while they were read. The target has the content that was read, and the next
            sync moves them again.
        failures: files that could not be moved, each with its error.
        unlisted: paths that are no files, or could not be listed, each with its error.
        gave_up: whether the remaining files were skipped, because the other side is down or refuses the key.
    """

    files: int = 0
    moved: int = 0
    moved_bytes: int = 0
    unchanged: int = 0
    deleted: int = 0
    grown: list[str] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)
    unlisted: dict[str, Exception] = field(default_factory=dict)
    gave_up: bool = False

    @property
    def why_not_all(self) -> str:
        """The end of a message about the failures: why files were skipped, if any were."""
        return SKIPPED_SUFFIX if self.gave_up else ""

    def raise_failures(self, source: Store, target: Store) -> None:
        """Raise an error that has all failures, if there are any.

        Args:
            source: the source of the sync.
            target: the target of the sync.

        Raises:
            SyncError: some files could not be moved.
        """
        failures = {**self.unlisted, **self.failures}
        if failures or self.gave_up:
            raise SyncError(
                f"{len(failures)} of {self.files + len(self.unlisted)} files were not copied from "
                f"{source.uri} to {target.uri}{self.why_not_all}",
                failures=failures,
            )


class DirSync:
    """Makes a folder equal to another one; only new and changed files are moved.

    A local file is unchanged when size, time in nanoseconds and inode are the same as in the last sync, an object
    when its ETag is. What was moved is remembered on this machine, also by a sync that is killed. A file that only
    grows while it is read, such as a log, is stored as of that moment, and moved again by the next sync; one that
    changes otherwise is read again. A file that fails does not stop the others. The commit of a trace is moved
    after all other files, and not at all if one of its blocks failed.

    Args:
        source: the store that is read.
        target: the store that is written.
        delete: delete files that the source does not have. Nothing is deleted if the source could not be listed,
            or a file could not be moved. Only a local source may be empty: elsewhere an empty folder looks like
            a mistyped one.
        checksum: compare the content of files that no earlier sync has moved, and do not move equal ones.
        verify: list the target, and move again files that changed or are missing there. Always done for a local
            target, and for one that was emptied: each sync checks one of the moved files.
        folders: create empty folders, too.
        remember: where rows about moved files are stored: a file, or an open `SyncMemory`; True for a file below
            `~/.cache`, False for nowhere.
        is_checked: whether the caller has compared the rows with the target.
        skip: called with each file of the source; accepted files count as unchanged.
        note: called with `move` or `delete` and the path, for each decision.
        takes_growing: keep what was read also of a file that was rewritten after it was read; the next sync moves
            it again. Without it, a file that is rewritten all the time is a failure.
        dry_run: decide, but change nothing.
        progress: show a bar.
        title: the title of the bar.
        bar: a bar of the caller, whose total already includes the moved bytes; instead of `progress`.
        workers: threads; by default many for small files, few for large ones.

    Example:
        >>> import tempfile
        >>> from pai_sdk.storage import open_store
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     here, there = open_store(f"{folder}/here"), open_store(f"{folder}/there")
        ...     _ = here.write("a/b.txt", b"hello")
        ...     report = DirSync(here, there, remember=Path(folder, "memory.db")).run()
        ...     report.moved, [file.path for file in there.list()]
        (1, ['a/b.txt'])
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        *,
        delete: bool = False,
        checksum: bool = False,
        verify: bool = False,
        folders: bool = True,
        remember: bool | Path | SyncMemory = True,
        is_checked: bool = False,
        skip: Callable[[StoredFile], bool] = lambda file: False,
        note: Callable[[str, str], None] = lambda action, path: None,
        takes_growing: bool = False,
        dry_run: bool = False,
        progress: bool = False,
        title: str = "syncing",
        bar: ByteBar | None = None,
        workers: int | None = None,
    ) -> None:
        if source.uri.startswith(target.uri) or target.uri.startswith(source.uri):
            message = f"{target.uri} and {source.uri} overlap"
            hint = "choose a folder that is not within the other one"
            raise InvalidInputError([Problem("target", message, hint)])
        self._source = source
        self._target = target
        self._delete = delete
        self._checksum = checksum
        self._folders = folders
        self._remember = memory_path(source, target) if remember is True else remember or None
        self._get_compares = source.compares_content and target.root is not None
        # Listing a local folder costs no requests, so changes in a local target are always detected.
        is_cheap = target.root is not None and self._remember is not None
        self._lists_target = verify or delete or (checksum and not self._get_compares) or is_cheap
        self._is_checked = is_checked
        self._skip = skip
        self._note = note
        self._takes_growing = takes_growing
        self._dry_run = dry_run
        self._progress = progress
        self._title = title
        self._bar = bar
        self._workers = workers

    def run(self) -> SyncReport:
        """Move new and changed files.

        Raises:
            SyncError: some files could not be moved; the others are complete and in place.
            StorageError: the source is not there, or the other side cannot be used at all.
        """
        report = self.attempt()
        report.raise_failures(self._source, self._target)
        return report

    def attempt(self) -> SyncReport:
        """Move new and changed files; failures are only in the report.

        Raises:
            StorageError: the source is not there, or the other side cannot be used at all.
        """
        if self._source.root is not None and not self._source.exists():
            raise ObjectNotFoundError(f"{self._source.root}: no such folder", uri=self._source.uri)
        report = SyncReport()
        deferred = _Deferred()
        with ExitStack() as stack:
            memory = self._remember
            if not isinstance(memory, SyncMemory):
                memory = stack.enter_context(SyncMemory(memory))
            bar = self._bar or stack.enter_context(ByteBar(self._title, is_visible=self._progress))
            if not (self._lists_target or self._is_checked or memory.is_present_in(self._target)):
                # One request has shown that the target was emptied since the last sync.
                self._lists_target = True
            with self._files(report, memory, bar) as files:
                self._walk(files, memory, deferred)
                # Those that are complete are remembered while others are moved: this process may be killed.
                files.pool.wait_for_files_in_parts(memory.write)
            # After all other files: a reader that sees a commit reads the blocks before it.
            if deferred.commits and not report.gave_up:
                self._move_commits(deferred.commits, report, memory, bar)
            # Nothing is deleted after an incomplete listing of the source, or after a failed move: the failed file
            # may be the replacement.
            while deferred.gone and not (report.gave_up or report.failures or report.unlisted):
                self._delete_now(list(islice(deferred.gone, _DELETE_BATCH)), deferred, report)
            # These files need the name of a folder that is deleted with its last file.
            if deferred.after_deletions and not report.gave_up:
                with self._files(report, memory, bar) as files:
                    for source in deferred.after_deletions:
                        files.submit(source)
        return report

    def _move_commits(
        self, commits: Sequence[StoredFile], report: SyncReport, memory: SyncMemory, bar: ByteBar
    ) -> None:
        """Moves the commits of traces whose blocks have all been moved."""
        failed = {path.rpartition("-")[0]: path for path in report.failures}
        with self._files(report, memory, bar) as files:
            for source in commits:
                block = failed.get(committed_by(source.path) or "")
                if block is None:
                    files.submit(source)
                else:
                    message = f"it was not copied, because {block} failed: it declares that this file exists"
                    report.failures[source.path] = StorageError(message)

    @contextmanager
    def _files(self, report: SyncReport, memory: SyncMemory, bar: ByteBar) -> Iterator[_Files]:
        try:
            with TransferPool(self._workers) as pool:
                # Shared, since a sync uses up to three pools, one after the other.
                pool.failures = report.failures
                yield _Files(
                    self._source,
                    self._target,
                    memory,
                    pool,
                    bar,
                    report,
                    skip_same=self._checksum,
                    takes_growing=self._takes_growing,
                    extends_total=self._bar is None,
                )
        finally:
            report.gave_up |= pool.gave_up

    def _walk(self, files: _Files, memory: SyncMemory, deferred: _Deferred) -> None:
        report = files.report

        source_files = self._source.list(folders=self._folders, unlisted=report.unlisted.__setitem__)
        first = next(source_files, None)
        # Checked before any row is forgotten: an empty listing of an object store may be that of a mistyped
        # prefix.
        if first is None and not report.unlisted:
            self._must_exist()
        sources = iter(()) if first is None else chain((first,), source_files)
        for path, source, row, target in _side_by_side(sources, memory.rows(), self._targets(report)):
            # Writes at most once a second, so that after a kill few files are moved again.
            memory.write()
            if source is not None:
                report.files += 1
                self._decide(source, row, target, files, deferred)
            else:
                if row is not None and not self._dry_run:
                    memory.forget(path)
                if target is not None and self._delete:
                    deferred.gone[path] = None
            if files.pool.gave_up:
                return

    def _must_exist(self) -> None:
        """Checks that a source without files is an empty folder, before anything is forgotten or deleted."""
        source, target = self._source, self._target
        # A local folder exists: `attempt` has checked it.
        if source.root is not None:
            return
        if self._delete:
            location = target.root or target.uri
            raise ObjectNotFoundError(
                f"{source.uri}: no such file or folder, or it is empty; nothing was deleted at "
                f"{location}. If it is meant to be empty: pai-sdk rm -r {shlex.quote(str(location))}",
                uri=source.uri,
            )
        # In some stores an empty folder cannot be distinguished from a missing one.
        if not source.exists():
            raise ObjectNotFoundError(f"{source.uri}: no such file or folder", uri=source.uri)

    def _targets(self, report: SyncReport) -> Iterator[StoredFile]:
        if not self._lists_target:
            return iter(())
        # Links of the target are not followed, because a deletion would continue in their targets.
        target = self._target.without_links()
        # A file of the target that is not listed is moved again, which reports the error.
        unlisted = report.unlisted.__setitem__ if self._delete else (lambda path, error: None)
        return target.list(folders=self._folders, unlisted=unlisted)

    def _decide(
        self, source: StoredFile, row: Moved | None, target: StoredFile | None, files: _Files, deferred: _Deferred
    ) -> None:
        """Moves a file now, or after the deletions, or not."""
        path, report = source.path, files.report
        if self._is_unchanged(source, row, target) or self._skip(source):
            report.unchanged += 1
            return
        if target is not None and self._has_same_content(source, target):
            report.unchanged += 1
            if not self._dry_run:
                files.remember(source, target)
            return
        self._note("move", path)
        if self._dry_run:
            report.moved += 1
            report.moved_bytes += source.size_bytes
            return
        self._target.prepare()
        if self._delete and deferred.folders_in(self._target, "") is not None:
            in_the_way = [str(folder) for folder in PurePosixPath(path).parents if str(folder) in deferred.gone]
            # A file is where a folder is needed, so it cannot wait for the end.
            if in_the_way and not report.unlisted:
                self._delete_now(in_the_way, deferred, report)
            # What is in a folder is deleted first; a folder that becomes empty by it is removed with it.
            parent, _, name = path.rpartition("/")
            if source.is_folder or (target is None and name in (deferred.folders_in(self._target, parent) or ())):
                deferred.after_deletions.append(source)
                return
        if committed_by(path) is None:
            files.submit(source)
        else:
            deferred.commits.append(source)

    def _is_unchanged(self, source: StoredFile, row: Moved | None, target: StoredFile | None) -> bool:
        if source.is_folder and target is not None:
            return True
        if row is None or row.source != source.mark:
            return False
        return not self._lists_target or (target is not None and target.etag == row.target)

    def _has_same_content(self, source: StoredFile, target: StoredFile) -> bool:
        if not self._checksum or source.size_bytes != target.size_bytes or source.link or target.link:
            return False
        if self._get_compares:
            # `get_file` compares them, on the threads of the pool.
            return False
        try:
            # The ETag of most objects is their MD5; otherwise both files are read.
            return _md5(self._source, source) == _md5(self._target, target)
        except (OSError, StorageError):
            # Moving it will report the error.
            return False

    def _delete_now(self, paths: Sequence[str], deferred: _Deferred, report: SyncReport) -> None:
        for path in paths:
            self._note("delete", path)
            del deferred.gone[path]
        report.deleted += len(paths)
        if not self._dry_run:
            self._target.delete(paths)


@dataclass
class _Deferred:
    """The work that remains after the listings were read."""

    gone: dict[str, None] = field(default_factory=dict)
    after_deletions: list[StoredFile] = field(default_factory=list)
    commits: list[StoredFile] = field(default_factory=list)
    _folders: dict[str, frozenset[str] | None] = field(default_factory=dict)

    def folders_in(self, target: Store, path: str) -> frozenset[str] | None:
        """Returns the folders that a folder had before the sync; None in a store without folders."""
        # One listing for each folder: a request for each file would take longer than small files themselves.
        if path not in self._folders:
            # Paths are sorted, so the folders of earlier paths are rarely needed again.
            if len(self._folders) >= _MAX_CACHED_FOLDERS:
                self._folders.clear()
            self._folders[path] = target.folders_in(path)
        return self._folders[path]


class _Files:
    """Moves files on the threads of a pool.

    The states of one file:

        listed -> queued -> read -> published -> remembered
                     ^       |         |
                     |       |         +-- it was rewritten meanwhile: read again, or recorded as grown
                     +-------+------------ it was rewritten while it was read: nothing is published
                             |
                             +-- deleted meanwhile: left out; any other error: a failure of this file

    The thread of the listing submits files. Threads of the pool read them, and send or fetch the parts of large
    ones. `_lock` guards the counters of the report; the memory has a lock of its own, and only the thread of the
    listing writes it to disk. No thread holds two locks.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        memory: SyncMemory,
        pool: TransferPool,
        bar: ByteBar,
        report: SyncReport,
        *,
        skip_same: bool,
        takes_growing: bool = False,
        extends_total: bool = True,
    ) -> None:
        # Calls of the transfer end when the pool is stopped, and are not retried after it gave up.
        self._source = source.cancelled_by(pool)
        self._target = target.cancelled_by(pool)
        self._memory = memory
        self._bar = bar
        self._skip_same = skip_same
        self._takes_growing = takes_growing
        self._extends_total = extends_total
        self._lock = threading.Lock()
        self.pool = pool
        self.report = report

    def submit(self, file: StoredFile, path: str | None = None) -> None:
        """Moves a file on the threads of the pool, which records its error."""
        if self._extends_total:
            self._bar.expect(file.size_bytes)
        move = partial(self._move, file, path or file.path)
        if self._is_in_parts(file.size_bytes):
            self.pool.submit_file_in_parts(file.path, move)
        else:
            self.pool.submit_file(file.path, move, size_bytes=file.size_bytes)

    def remember(self, source: StoredFile, target: StoredFile) -> None:
        """Records that both sides have a file."""
        self._memory.put(source.path, source.mark, target.etag)

    def _is_in_parts(self, size_bytes: int) -> bool:
        if self._target.root is not None:
            return size_bytes > self._source.largest_get_bytes
        return self._source.root is not None and size_bytes > self._target.largest_put_bytes

    def _move(self, file: StoredFile, path: str) -> None:
        for _ in range(_MAX_READS):
            share = FileShare(self._bar)
            try:
                current = self._current_version(file)
                move = FileMove(
                    current, self._source, self._target, path, self.pool, share, skip_same=self._skip_same
                )
                written = self._move_once(move)
                read = move.file
                if not move.is_exact:
                    # The listing of an object store does not include the executable bit.
                    head = self._source.head(file.path)
                    read = head if self._source.root is not None else replace(head, executable=current.executable)
                if read.etag == move.file.etag:
                    return self._record_moved(read, written)
                # A log that only grows is published as of its first reading; other changes are read again.
                if self._takes_growing or move.has_grown or move.is_prefix_of(read):
                    # With the mark of before, so that the next sync finds it changed.
                    return self._record_moved(move.file, written, grown=True)
                file = read
            except FileChangedError:
                # The hash of a tree is fixed, so reading again cannot succeed.
                if file.digest:
                    raise
                file = self._source.head(file.path)
            except (FileNotFoundError, ObjectNotFoundError):
                if file.digest or self._exists(file):
                    raise
                return share.restart()
            share.restart()
        raise FileChangedError(f"{file.path} changes all the time; sync it again when no program writes to it")

    def _current_version(self, file: StoredFile) -> StoredFile:
        """Returns the current metadata of a local file, which may have been listed a while ago."""
        if self._source.root is None or file.link or file.is_folder or file.digest:
            return file
        current = self._source.head(file.path)
        # Within one tick of the clock, a later write would not change the modification time.
        if not clock_passed(current, wait=True):
            current = self._source.head(file.path)
        # This thread was chosen for the size of before.
        return file if self._is_in_parts(current.size_bytes) is not self._is_in_parts(file.size_bytes) else current

    def _record_moved(self, read: StoredFile, written: StoredFile, *, grown: bool = False) -> None:
        self.remember(read, written)
        # Threads of the pool finish files at the same time.
        with self._lock:
            self.report.moved += 1
            self.report.moved_bytes += read.size_bytes
            if grown:
                self.report.grown.append(read.path)

    def _move_once(self, move: FileMove) -> StoredFile:
        """Moves the file once; returns the metadata of the file in the target."""
        source, target, file = self._source, self._target, move.file
        move.is_exact = bool(file.is_folder or file.link or file.digest)
        if file.is_folder and file.size_bytes:
            raise PathConflictError("its key is that of a folder, but it has content; it cannot be a file here")
        if file.is_folder:
            return target.write(move.path, b"")
        if file.link:
            return target.write_link(move.path, file.link)
        return source.get_file(move) if target.root is not None else target.put_file(move)

    def _exists(self, file: StoredFile) -> bool:
        try:
            self._source.head(file.path)
        except ObjectNotFoundError:
            return False
        return True


def move_file(
    source: Store,
    file: StoredFile,
    target: Store,
    path: str,
    *,
    skip_same: bool = False,
    progress: bool = False,
    title: str = "copying",
    workers: int | None = None,
) -> None:
    """Moves one file to another store, as `DirSync` does; ObjectNotFoundError: it was deleted meanwhile."""
    # `skip_same` leaves a local file that has the content already; `workers` are for the parts of a large file.
    report = SyncReport()
    target.prepare()
    with ByteBar(title, is_visible=progress) as bar, TransferPool(workers) as pool:
        files = _Files(source, target, SyncMemory(None), pool, bar, report, skip_same=skip_same)
        files.submit(file, path)
    for error in pool.failures.values():
        raise error
    if not report.moved:
        uri = source.uri + file.path
        raise ObjectNotFoundError(f"{uri} was deleted meanwhile", uri=uri)


def _side_by_side(
    sources: Iterator[StoredFile], rows: Iterator[Moved], targets: Iterator[StoredFile]
) -> Iterator[tuple[str, StoredFile | None, Moved | None, StoredFile | None]]:
    """Yields the entries of three sequences sorted by path, matched by path."""
    source, row, target = next(sources, None), next(rows, None), next(targets, None)
    while source is not None or row is not None or target is not None:
        path = min(item.path for item in (source, row, target) if item is not None)
        source_match = source if source is not None and source.path == path else None
        row_match = row if row is not None and row.path == path else None
        target_match = target if target is not None and target.path == path else None
        yield path, source_match, row_match, target_match
        if source_match is not None:
            source = next(sources, None)
        if row_match is not None:
            row = next(rows, None)
        if target_match is not None:
            target = next(targets, None)


def _md5(store: Store, file: StoredFile) -> str:
    if MD5.fullmatch(file.etag):
        return file.etag.lower()
    content = hashlib.md5(usedforsecurity=False)
    for chunk in store.read(file.path):
        content.update(chunk)
    return content.hexdigest()
