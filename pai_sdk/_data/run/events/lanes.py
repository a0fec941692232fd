"""Assigns event files that name machines, and no instances, to trainings.

PyTorch, Lightning and TensorFlow put the name of the machine into the names of their files. A preempted training
continues on another machine, so the name alone does not identify it: files that follow each other are of one
training. Machines that write at the same time, from about the same step on, are several trainings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["HostFiles", "lanes"]


class HostFiles(NamedTuple):
    """A file that names a machine."""

    rank: int  # of the process, by the folder
    host: str
    started: Any  # when the file was started, by its name; any sort key
    wall: tuple[float, float]  # the smallest and the largest time of its points
    step: tuple[float, float]  # the smallest and the largest step of its points


def lanes(files: Sequence[HostFiles]) -> list[tuple[int, str]]:
    """Returns rank and machine of each file; the machine is empty unless several of the rank write at one time."""
    by_host: dict[tuple[int, str], list[HostFiles]] = {}
    for file in sorted(files, key=lambda file: file.started):
        by_host.setdefault((file.rank, file.host), []).append(file)
    lane_by_host: dict[tuple[int, str], str] = {}
    lanes_of_rank: dict[int, list[tuple[str, list[HostFiles]]]] = {}
    for (rank, host), candidates in by_host.items():
        existing = lanes_of_rank.setdefault(rank, [])
        for name, members in existing:
            if not any(_are_beside(candidate, other) for candidate in candidates for other in members):
                lane_by_host[rank, host] = name
                members.extend(candidates)
                break
        else:
            # The machine that started first, and those that continue its training, have an empty name.
            lane_by_host[rank, host] = host if existing else ""
            existing.append((lane_by_host[rank, host], [*candidates]))
    return [(file.rank, lane_by_host[file.rank, file.host]) for file in files]


def _are_beside(first: HostFiles, second: HostFiles) -> bool:
    """Returns True when two files were written at the same time, from about the same step on."""
    if max(first.wall[0], second.wall[0]) > min(first.wall[1], second.wall[1]):
        return False
    if max(first.step[0], second.step[0]) > min(first.step[1], second.step[1]):
        return False
    max_span = max(file.step[1] - file.step[0] for file in (first, second)) + 1
    return abs(first.step[0] - second.step[0]) * 2 <= max_span
