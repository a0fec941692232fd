"""Lists the folders of event files in a folder and directly below it, as MindInsight's watcher does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pai_sdk.run.events.files import is_event_file
from pai_sdk.run.mindinsight.train_jobs import ParamValueError

__all__ = ["SummaryDirectory", "SummaryWatcher"]


@dataclass(frozen=True)
class SummaryDirectory:
    """A folder with event files.

    Attributes:
        relative_path: `./` or `./name`.
        create_time: of its oldest event file, in seconds since 1970.
        update_time: of its newest one, likewise.
        summary_files: how many there are.
    """

    relative_path: str
    create_time: float
    update_time: float
    summary_files: int


class SummaryWatcher:
    """Lists folders of event files. Symbolic links are left out.

    Example:
        >>> import tempfile
        >>> from pai_sdk.run.events.writer import EventWriter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with EventWriter(f"{folder}/a") as writer:
        ...         writer.scalars({"loss": 0.5}, step=1)
        ...     total, found = SummaryWatcher().list_summary_directories_by_pagination(folder)
        >>> total, found[0].relative_path
        (1, './a')
    """

    MAX_SUMMARY_DIR_COUNT = 999
    MAX_SCAN_COUNT = 20_000

    def list_summary_directories(self, summary_base_dir: str, overall: bool = True) -> list[SummaryDirectory]:
        """The folders of event files, the newest first, at most `MAX_SUMMARY_DIR_COUNT`.

        Args:
            summary_base_dir: the folder.
            overall: False to look at no more than `MAX_SCAN_COUNT` files and folders.

        Raises:
            ParamValueError: this cannot be the path of a folder.
        """
        base = os.path.realpath(_checked(summary_base_dir))
        left = [self.MAX_SCAN_COUNT if not overall else -1]
        found = []
        for relative, folder in (("./", base), *_folders(base, left)):
            directory = _directory(relative, folder, left)
            if directory is not None:
                found.append(directory)
        found.sort(key=lambda one: (-one.update_time, one.relative_path))
        return found[: self.MAX_SUMMARY_DIR_COUNT]

    def list_summary_directories_by_pagination(
        self, summary_base_dir: str, offset: int = 0, limit: int = 10
    ) -> tuple[int, list[SummaryDirectory]]:
        """The number of folders, and those of one page.

        Args:
            summary_base_dir: the folder.
            offset: the number of the page, from 0.
            limit: folders on a page.

        Raises:
            ParamValueError: an argument cannot be used.
        """
        for name, value, least in (("offset", offset, 0), ("limit", limit, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ParamValueError(f"{name} should be a whole number from {least}, not {value!r}.")
        found = self.list_summary_directories(summary_base_dir)
        return len(found), found[offset * limit : (offset + 1) * limit]

    def is_summary_directory(self, summary_base_dir: str, relative_path: str) -> bool:
        """True if a folder below another one has event files.

        Raises:
            ParamValueError: a path has a null byte, or leads out of the folder.
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


def _entries(folder: str, left: list[int]) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder, until `left` is used up; -1 is without a limit."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if left[0] == 0:
                    return
                left[0] -= 1
                yield entry
    except OSError:  # it went, or may not be read
        return


def _folders(base: str, left: list[int]) -> list[tuple[str, str]]:
    names = sorted(entry.name for entry in _entries(base, left) if entry.is_dir(follow_symlinks=False))
    return [(f"./{name}", str(Path(base, name))) for name in names]


def _directory(relative: str, folder: str, left: list[int]) -> SummaryDirectory | None:
    times = []
    for entry in _entries(folder, left):
        if is_event_file(entry.name) and entry.is_file(follow_symlinks=False):
            try:
                times.append(entry.stat(follow_symlinks=False).st_mtime)
            except OSError:  # it went
                continue
    return SummaryDirectory(relative, min(times), max(times), len(times)) if times else None
