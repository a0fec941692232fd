"""Event files that name machines and no instances: which of them are of one training.

PyTorch, Lightning and TensorFlow put the name of the machine into the names of their files. A training that was
preempted continues on another machine, so a name alone tells nothing: files that follow each other are of one
training. Machines that write at the same time, from about the same step on, are several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["HostFiles", "lanes"]


class HostFiles(NamedTuple):
    """A file that names a machine.

    Attributes:
        rank: of the process, by the folder.
        host: the machine.
        began: when the file was begun by its name; anything that can be compared.
        wall: the least and the largest time of its points.
        step: their least and largest step.
    """

    rank: int
    host: str
    began: Any
    wall: tuple[float, float]
    step: tuple[float, float]


def lanes(files: Sequence[HostFiles]) -> list[tuple[int, str]]:
    """Returns the source of each file: its rank, and the machine where several of that rank write at one time.

    The machine that began first, and those that follow it, have no name.

    Example:
        >>> files = [HostFiles(-1, host, n, (n, n + 9), (n, n + 9)) for n, host in enumerate("aab")]
        >>> lanes(files)
        [(-1, ''), (-1, ''), (-1, 'b')]
    """
    by_host: dict[tuple[int, str], list[HostFiles]] = {}
    for file in sorted(files, key=lambda file: file.began):
        by_host.setdefault((file.rank, file.host), []).append(file)
    found: dict[tuple[int, str], str] = {}
    lanes_of_rank: dict[int, list[tuple[str, list[HostFiles]]]] = {}
    for (rank, host), its in by_host.items():
        known = lanes_of_rank.setdefault(rank, [])
        for name, members in known:
            if not any(_are_beside(one, other) for one in its for other in members):
                found[rank, host] = name
                members.extend(its)
                break
        else:
            found[rank, host] = host if known else ""
            known.append((found[rank, host], [*its]))
    return [(file.rank, found[file.rank, file.host]) for file in files]


def _are_beside(one: HostFiles, other: HostFiles) -> bool:
    """Returns True when two files were written at the same time, from about the same step on."""
    if max(one.wall[0], other.wall[0]) > min(one.wall[1], other.wall[1]):
        return False
    if max(one.step[0], other.step[0]) > min(one.step[1], other.step[1]):
        return False
    longest = max(file.step[1] - file.step[0] for file in (one, other)) + 1
    return abs(one.step[0] - other.step[0]) * 2 <= longest
