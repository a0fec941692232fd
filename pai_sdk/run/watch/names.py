"""Distinct short names of runs, and the names of the metrics that lists of runs show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence

from pai_sdk.run.watch.records import RunBrief
from pai_sdk.schemas.job_names import without_ending
from pai_sdk.storage.stores.local import path_of_file_uri

__all__ = ["folder_of", "is_named", "is_of_instance", "run_names", "usual_tags"]

_MOST_TAGS = 4
_SHORTEST_ID = 4  # characters of an id behind a name
_OF_SEVERAL_PREFIXES = re.compile("@[0-9]+$")


def folder_of(uri: str) -> str:
    """The folder of a run, from the URI of its event files; a path where it is on this machine.

    Example:
        >>> folder_of("file:///data/my%20runs/a/tensorboard/"), folder_of("oss://models/runs/a")
        ('/data/my runs/a', 'oss://models/runs/a')
    """
    place = str(path_of_file_uri(uri)) if uri.startswith("file:") else uri
    return place.rstrip("/").removesuffix("/tensorboard")


def is_named(brief: RunBrief) -> bool:
    """True for a run with a name of its own, such as a job's; the others are called by their folders.

    Example:
        >>> is_named(RunBrief("train1", name="first")), is_named(RunBrief("a@2", name="a"))
        (True, False)
    """
    folder = _OF_SEVERAL_PREFIXES.sub("", brief.id) if "@" in brief.id else brief.id
    return brief.name not in ("", folder) and folder != "."


def is_of_instance(tag: str, tags: Container[str]) -> bool:
    """True for a metric that another instance reports under the name of one of `tags`.

    Example:
        >>> is_of_instance("loss (worker-1)", ["loss"]), is_of_instance("time (s)", ["loss"])
        (True, False)
    """
    return tag.endswith(")") and tag.rpartition(" (")[0] in tags


def usual_tags(runs: Sequence[RunBrief], most: int = _MOST_TAGS) -> tuple[str, ...]:
    """Returns the metrics that most runs have, up to a limit; of those, the ones with most points first.

    Equal ones are in the order in which they were reported. What further instances report under the same name is
    at the end: `loss (worker-1)`.
    """
    counts: dict[str, tuple[int, int]] = {}
    for run in runs:
        for tag, summary in run.tags.items():
            if summary.kind == "scalar":
                having, points = counts.get(tag, (0, 0))
                counts[tag] = having + 1, points + summary.count
    order = sorted(counts, key=lambda tag: (not is_of_instance(tag, counts), *counts[tag]), reverse=True)
    return tuple(order[:most])


def run_names(briefs: Iterable[RunBrief]) -> dict[str, str]:
    """The short names of runs by their ids; no two runs have the same one.

    The name of a job has no random ending here. Where jobs have the same name, the end of the id follows it.
    Folders with the same name have as much of their paths before it as tells them apart.

    Example:
        >>> runs = [RunBrief(".", "oss://a/x", name="x"), RunBrief(".@2", "oss://b/x", name="x")]
        >>> run_names([*runs, RunBrief("train1x7k2", name="lr-3f2a9c"), RunBrief("train9f2a1", name="lr")])
        {'.': 'a/x', '.@2': 'b/x', 'train1x7k2': 'lr (x7k2)', 'train9f2a1': 'lr (f2a1)'}
    """
    some = list(briefs)
    names = [without_ending(brief.name) if is_named(brief) else brief.name or brief.id for brief in some]
    counts = Counter(names)
    found = {brief.id: name for brief, name in zip(some, names, strict=True)}
    shared: dict[str, list[RunBrief]] = {}
    for brief, name in zip(some, names, strict=True):
        if counts[name] > 1:
            shared.setdefault(name, []).append(brief)
    for name, same in shared.items():
        found |= zip((one.id for one in same), _told_apart(name, same), strict=True)
    counts = Counter(found.values())
    return {run_id: name if counts[name] == 1 else f"{name} ({run_id})" for run_id, name in found.items()}


def _told_apart(name: str, briefs: Sequence[RunBrief]) -> list[str]:
    """Names with the end of the job's id, or with more of the path; the same name again where neither helps."""
    if any(map(is_named, briefs)):
        ids = [brief.id for brief in briefs]
        length = _SHORTEST_ID
        while len({run_id[-length:] for run_id in ids}) < len(set(ids)):
            length += 1
        return [f"{name} ({brief.id[-length:] if is_named(brief) else brief.id})" for brief in briefs]
    paths = [folder_of(brief.uri).split("/") for brief in briefs]
    for depth in range(name.count("/") + 2, max(map(len, paths))):
        longer = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(longer)) == len(longer):
            return longer
    return [name] * len(briefs)
