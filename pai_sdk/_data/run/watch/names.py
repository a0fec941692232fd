"""Distinct short names of runs, and the metrics that lists of runs display."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence

from pai_sdk._data.run.watch.records import RunBrief
from pai_sdk._data.storage.stores.local import path_of_file_uri
from pai_sdk._wire.pai.job_names import without_suffix

_MAX_TAGS = 4
_MIN_ID_LENGTH = 4  # characters of an id after a name
_OF_SEVERAL_PREFIXES = re.compile("@[0-9]+$")


def folder_of(uri: str) -> str:
    """Returns the folder of a run, from the URI of the event files; a path for `file:` URIs."""
    path = str(path_of_file_uri(uri)) if uri.startswith("file:") else uri
    return path.rstrip("/").removesuffix("/tensorboard")


def has_explicit_name(brief: RunBrief) -> bool:
    """Returns True for a run with an explicit name, such as a job's; other runs are named by their folders."""
    folder = _OF_SEVERAL_PREFIXES.sub("", brief.id) if "@" in brief.id else brief.id
    return brief.name not in ("", folder) and folder != "."


def is_of_instance(tag: str, tags: Container[str]) -> bool:
    """Returns True for a metric that another instance reports under the name of one of `tags`."""
    return tag.endswith(")") and tag.rpartition(" (")[0] in tags


def usual_tags(runs: Sequence[RunBrief], max_tags: int = _MAX_TAGS) -> tuple[str, ...]:
    """Returns the metrics that most runs have, up to a limit; those with most points first."""
    counts: dict[str, tuple[int, int]] = {}
    for run in runs:
        for tag, summary in run.tags.items():
            if summary.kind == "scalar":
                having, points = counts.get(tag, (0, 0))
                counts[tag] = having + 1, points + summary.count
    # Stable: equal ones stay in the order of their first report. Metrics of further instances with an existing
    # name, `loss (worker-1)`, are at the end.
    order = sorted(counts, key=lambda tag: (not is_of_instance(tag, counts), *counts[tag]), reverse=True)
    return tuple(order[:max_tags])


def run_names(briefs: Iterable[RunBrief]) -> dict[str, str]:
    """Returns distinct short names of runs by their ids.

    The name of a job has no random suffix. Where jobs have equal names, the end of the id follows the name.
    Folders with equal names have as much of their paths before the name as makes them distinct.
    """
    runs = list(briefs)
    names = [without_suffix(brief.name) if has_explicit_name(brief) else brief.name or brief.id for brief in runs]
    counts = Counter(names)
    names_by_id = {brief.id: name for brief, name in zip(runs, names, strict=True)}
    shared: dict[str, list[RunBrief]] = {}
    for brief, name in zip(runs, names, strict=True):
        if counts[name] > 1:
            shared.setdefault(name, []).append(brief)
    for name, same_name in shared.items():
        names_by_id |= zip((run.id for run in same_name), _distinct_names(name, same_name), strict=True)
    counts = Counter(names_by_id.values())
    return {run_id: name if counts[name] == 1 else f"{name} ({run_id})" for run_id, name in names_by_id.items()}


def _distinct_names(name: str, briefs: Sequence[RunBrief]) -> list[str]:
    """Returns names with the end of the job's id or with more of the path; equal names where neither helps."""
    if any(map(has_explicit_name, briefs)):
        ids = [brief.id for brief in briefs]
        length = _MIN_ID_LENGTH
        while len({run_id[-length:] for run_id in ids}) < len(set(ids)):
            length += 1
        return [f"{name} ({brief.id[-length:] if has_explicit_name(brief) else brief.id})" for brief in briefs]
    paths = [folder_of(brief.uri).split("/") for brief in briefs]
    for depth in range(name.count("/") + 2, max(map(len, paths))):
        longer = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(longer)) == len(longer):
            return longer
    return [name] * len(briefs)
