"""Lists the folders of event files in a folder and directly below it, as MindInsight's watcher does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pai_sdk._data.run.events.files import is_event_file
from pai_sdk.alipai.mindinsight.train_jobs import ParamValueError, check_int

__all__ = ["SummaryDirectory", "SummaryWatcher"]


@dataclass(frozen=True)
class SummaryDirectory:
    """A folder with event files.

    Attributes:
        relative_path: `./` or `./name`.
        create_time: of the oldest event file, in seconds since 1970.
        update_time: of the newest event file, in seconds since 1970.
        summary_files: the number of event files.
    """

    relative_path: str
    create_time: float
    update_time: float
    summary_files: int


class SummaryWatcher:
    """Lists folders of event files. Symbolic links are left out.

    Example:
        >>> import tempfile
        >>> from pai_sdk.runs import EventWriter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with EventWriter(f"{folder}/a") as writer:
        ...         writer.scalars({"loss": 0.5}, step=1)
        ...     total, directories = SummaryWatcher().list_summary_directories_by_pagination(folder)
        >>> total, directories[0].relative_path
        (1, './a')
    """

    MAX_SUMMARY_DIR_COUNT = 999
    MAX_SCAN_COUNT = 20_000

    def list_summary_directories(self, summary_base_dir: str, overall: bool = True) -> list[SummaryDirectory]:
        """Returns the folders of event files, the newest first, at most `MAX_SUMMARY_DIR_COUNT`.

        Args:
            summary_base_dir: the folder.
            overall: False to scan at most `MAX_SCAN_COUNT` files and folders.

        Raises:
            ParamValueError: the path is not valid.
        """
        base = os.path.realpath(_checked(summary_base_dir))
        budget = [self.MAX_SCAN_COUNT if not overall else -1]
        directories = []
        for relative, folder in (("./", base), *_folders(base, budget)):
            directory = _directory(relative, folder, budget)
            if directory is not None:
                directories.append(directory)
        directories.sort(key=lambda item: (-item.update_time, item.relative_path))
        return directories[: self.MAX_SUMMARY_DIR_COUNT]

    def list_summary_directories_by_pagination(
        self, summary_base_dir: str, offset: int = 0, limit: int = 10
    ) -> tuple[int, list[SummaryDirectory]]:
        """Returns the number of folders, and the folders of one page.

        Args:
            summary_base_dir: the folder.
            offset: the number of the page, from 0.
            limit: folders on a page.

        Raises:
            ParamValueError: an argument is not valid.
        """
        check_int("offset", offset, minimum=0)
        check_int("limit", limit, minimum=1)
        directories = self.list_summary_directories(summary_base_dir)
        return len(directories), directories[offset * limit : (offset + 1) * limit]

    def is_summary_directory(self, summary_base_dir: str, relative_path: str) -> bool:
        """Returns True if a folder below another one has event files.

        Raises:
            ParamValueError: a path has a null byte, or points outside of the folder.
        """
        base = os.path.realpath(_checked(summary_base_dir))
        folder = os.path.realpath(os.path.join(base, _checked(relative_path)))  # noqa: PTH118
        if folder != base and not folder.startswith(base.rstrip(os.sep) + os.sep):
            raise ParamValueError(f"{relative_path!r} leads out of {summary_base_dir!r}.")
        return _directory(relative_path, folder, [-1]) is not None


def _checked(path: str) -> str:
    if not isinstance(path, str) or not path or "\0" in path:
        raise ParamValueError(f"{path!r} is not the path of a folder.")
    return path


def _entries(folder: str, budget: list[int]) -> Iterator[os.DirEntry[str]]:
    """Yields the entries of a folder, until the shared `budget` is used up; -1 is without a limit."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if budget[0] == 0:
                    return
                budget[0] -= 1
                yield entry
    except OSError:  # removed, or not readable
        return


def _folders(base: str, budget: list[int]) -> list[tuple[str, str]]:
    names = sorted(entry.name for entry in _entries(base, budget) if entry.is_dir(follow_symlinks=False))
    return [(f"./{name}", str(Path(base, name))) for name in names]


def _directory(relative: str, folder: str, budget: list[int]) -> SummaryDirectory | None:
    times = []
    for entry in _entries(folder, budget):
        if is_event_file(entry.name) and entry.is_file(follow_symlinks=False):
            try:
                times.append(entry.stat(follow_symlinks=False).st_mtime)
            except OSError:  # removed
                continue
    return SummaryDirectory(relative, min(times), max(times), len(times)) if times else None
