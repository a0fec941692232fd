"""Links in an input folder that lead nowhere in a container, which sees that folder and nothing around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

_MOST_FILES = 50_000  # so many are looked at before a job starts; a data set may have millions
_SHOWN = 3
_IN_THE_CONTAINER = "/ml"


def links_notice(channel: str, folder: Path) -> str | None:
    """The notice about links in a channel's folder that lead out of it; None where there are none.

    Example:
        >>> links_notice("train", Path("/nowhere")) is None
        True
    """
    found = list(islice(_links_out_of(folder), _SHOWN + 1))
    if not found:
        return None
    names = [f"{path.relative_to(folder)} -> {target}" for path, target in found[:_SHOWN]]
    more = ["…"] if len(found) > _SHOWN else []
    return (
        f"inputs[{channel!r}]: links that lead out of {folder} cannot be followed in the container: "
        f"{', '.join(names + more)}; put the files themselves there, or give the folder they are in"
    )


def _links_out_of(folder: Path) -> Iterator[tuple[Path, Path]]:
    entries = ((where, name) for where, folders, files in os.walk(folder) for name in (*folders, *files))
    for where, name in islice(entries, _MOST_FILES):
        path = Path(where, name)
        if path.is_symlink():
            target = path.readlink()
            if not _is_there(folder, where, target):
                yield path, target


def _is_there(folder: Path, where: str, target: Path) -> bool:
    """Whether the target of a link is seen in the container, too."""
    if target.is_absolute():  # even one that leads back into the folder, which has another name there
        return target.is_relative_to(_IN_THE_CONTAINER)
    return Path(os.path.normpath(Path(where, target))).is_relative_to(os.path.normpath(folder))
