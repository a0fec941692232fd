"""Reads images, histograms and texts from the event files of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pai_sdk._service.services.runs.list_responses import plain
from pai_sdk._service.services.runs.runs import call_manager

if TYPE_CHECKING:
    from pai_sdk._data.run.events.reader import Entry
    from pai_sdk._data.run.watch.watched_run import WatchedRun

_MAX_ITEMS = 200
_MAX_BINS = 64
_MAX_TEXT_LENGTH = 20_000
_Item = TypeVar("_Item")


def media_items(run: WatchedRun, kind: str | None, tag: str) -> Iterable[dict[str, Any]]:
    """Returns the images, texts or histograms of one tag, spread over the training."""
    if not tag:
        return ()
    if kind == "image":
        return [
            {"index": image.number, "step": image.step, "wall": image.wall, "size_bytes": image.size_bytes}
            for image in _thinned(call_manager(run.images, tag))
        ]
    if kind == "text":
        return (
            {**_location(index, entry), "text": _truncated(entry.value)}
            for index, entry in _thinned([*enumerate(call_manager(run.text, tag))])
        )
    if kind == "histogram":
        return (
            {**_location(index, entry), "bins": _bins(entry.value.tolist())}
            for index, entry in _thinned([*enumerate(call_manager(run.histograms, tag))])
        )
    return ()


def _thinned(items: Sequence[_Item]) -> Sequence[_Item]:
    """Selects at most 200 items, including the first and the last one."""
    if len(items) <= _MAX_ITEMS:
        return items
    last = len(items) - 1
    return [items[round(at * last / (_MAX_ITEMS - 1))] for at in range(_MAX_ITEMS)]


def _location(index: int, entry: Entry) -> dict[str, Any]:
    return {"index": index, "step": entry.step, "wall": entry.wall}


def _truncated(text: str) -> str:
    if len(text) <= _MAX_TEXT_LENGTH:
        return text
    return f"{text[:_MAX_TEXT_LENGTH]}… ({len(text):,} characters)"


def _bins(rows: Sequence[Sequence[float]]) -> list[list[Any]]:
    """Merges neighbouring bins to at most 64."""
    width = -(-len(rows) // _MAX_BINS) or 1
    joined = [rows[at : at + width] for at in range(0, len(rows), width)]
    return [[plain(group[0][0]), plain(group[-1][1]), plain(sum(row[2] for row in group))] for group in joined]
