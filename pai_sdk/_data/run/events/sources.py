"""Orders the sources of one metric: the first source has the plain name of the metric.

The order, for curves, lists, comparisons, searches and the last values of jobs:

1. Reported points come before points from logs.
2. Process 0 comes first, then the other processes by their ranks.
3. Instances of one rank are sorted by their roles (chief, master, worker, ps, evaluator), then by their numbers;
   sources without a role, such as machines, come last, by their names.

Files of PyTorch, Lightning and TensorFlow name their machine in place of an instance. A preempted training
continues on another machine, so that name alone does not identify it: files that follow each other are of one
training. Machines that write at the same time, from about the same step on, are several trainings: `lanes`.

Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

_ROLES = ("chief", "master", "worker", "ps", "evaluator")
_INSTANCE = re.compile(rf"(?:.+-)?({'|'.join(_ROLES)})-([0-9]{{1,9}})(?:\.log)?", re.DOTALL)


class _Point(Protocol):
    """A value as `job.metrics()` returns it; values from logs have no step."""

    @property
    def name(self) -> str | None: ...
    @property
    def instance(self) -> str | None: ...
    @property
    def rank(self) -> int | None: ...
    @property
    def step(self) -> int | None: ...


_P = TypeVar("_P", bound=_Point)


def is_instance(name: str) -> bool:
    """Returns True for the name of an instance of a job, as `report` puts it into the names of its files."""
    return "-" in name and _INSTANCE.fullmatch(name) is not None


def source_order(instance: str | None, rank: int | None = 0, *, is_from_log: bool = False) -> tuple[Any, ...]:
    """Returns the key by which the sources of one metric are sorted; the first source has the plain name."""
    match = _INSTANCE.fullmatch(instance or "")
    role = (_ROLES.index(match[1]), int(match[2])) if match else (len(_ROLES), 0)
    return is_from_log, max(rank or 0, 0), *role, instance or ""


def point_order(point: _Point) -> tuple[Any, ...]:
    """Returns the sort key of the source of a point; see `source_order`."""
    return source_order(point.instance, point.rank, is_from_log=point.step is None)


def source_label(point: _Point) -> str:
    """Returns the instance of a point, with its rank if that is not 0: an instance can have several processes."""
    return f"{point.instance or ''}{f' rank-{point.rank}' if point.rank else ''}"


def preferred_points(points: Iterable[_P]) -> list[_P]:
    """Returns the points of the first source of each metric, in their order."""
    orders: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # cached by source, which has many points
    first: dict[str | None, tuple[Any, ...]] = {}
    ordered = []
    for point in points:
        source = point.instance, point.rank, point.step is None
        order = orders.get(source)
        if order is None:
            order = orders[source] = point_order(point)
        first[point.name] = min(first.get(point.name, order), order)
        ordered.append((order, point))
    return [point for order, point in ordered if order == first[point.name]]


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
            # The machine that started first, and machines that continue its training, have an empty name.
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
