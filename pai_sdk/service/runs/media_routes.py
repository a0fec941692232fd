"""Runs: the images, histograms and texts in their event files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response

from pai_sdk.service.budgets import RUNS, BudgetedRoute, WorkOf, within
from pai_sdk.service.runs.curve_responses import JSON
from pai_sdk.service.runs.list_responses import plain
from pai_sdk.service.runs.responses import LIVE, json_list, tagged
from pai_sdk.service.runs.run_routes import asked, found_run
from pai_sdk.service.runs.source import RunsOf
from pai_sdk.service.wire_errors import WireError

if TYPE_CHECKING:
    from pai_sdk.run.events.reader import Entry

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/runs/{run_id:path}", route_class=BudgetedRoute)

_KINDS = ("image", "histogram", "text", "audio")
_MOST_ITEMS = 200
_MOST_BINS = 64
_LONGEST_TEXT = 20_000
_LARGEST_IMAGE_BYTES = 15 << 20
_IMAGE_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_One = TypeVar("_One")


@router.get("/media")
@within(RUNS)
def list_media(
    request: Request,
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    kind: Annotated[Literal["image", "histogram", "text", "audio"] | None, Query()] = None,
    tag: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """What the event files of a run have besides numbers: its tags, and with `kind` and `tag` the items of one.

    Of many items, at most 200 come, from the whole training. Images are fetched one by one.
    """
    run = found_run(runs, run_id)
    named = [(one.tag, one.kind, one.count) for one in run.tags().values() if one.kind in _KINDS]
    tags = [{"tag": name, "kind": its_kind, "count": count} for name, its_kind, count in named]
    items: Iterable[dict[str, Any]] = ()
    if kind == "image" and tag:
        items = [
            {"index": one.number, "step": one.step, "wall": one.wall, "size_bytes": one.size_bytes}
            for one in _thinned(asked(run.images, tag))
        ]
    elif kind == "text" and tag:
        items = (
            {**_place(index, entry), "text": _cut(entry.value)}
            for index, entry in _thinned([*enumerate(asked(run.text, tag))])
        )
    elif kind == "histogram" and tag:
        items = (
            {**_place(index, entry), "bins": _bins(entry.value.tolist())}
            for index, entry in _thinned([*enumerate(asked(run.histograms, tag))])
        )
    content = json_list("items", items, {"tags": tags}, work)
    return tagged(request, content, JSON, LIVE)


@router.get("/media/image", response_class=Response, responses={200: {"content": {"image/png": {}}}})
@within(RUNS)
def read_image(
    request: Request,
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    tag: Annotated[str, Query(max_length=4096)],
    index: Annotated[int, Query(ge=0, description="As the list of images has it.")],
) -> Response:
    """One image: PNG, JPEG or GIF, by what it begins with."""
    found = asked(found_run(runs, run_id).images, tag, index)
    content: bytes = found[0].content if found else b""
    media_type = next((name for begin, name in _IMAGE_TYPES.items() if content.startswith(begin)), None)
    if media_type is None:
        raise WireError(404, "RUN_IMAGE_NOT_FOUND", f"{tag[:200]!r} has no PNG, JPEG or GIF with index {index}.")
    if len(content) > _LARGEST_IMAGE_BYTES:
        raise WireError(400, "ImageTooLarge", f"The image has {len(content):,} bytes; read it from the file.")
    work.spend(len(content))
    return tagged(request, content, media_type, {**LIVE, "X-Content-Type-Options": "nosniff"})


def _thinned(items: Sequence[_One]) -> Sequence[_One]:
    """At most 200 of them, the first and the last among them."""
    if len(items) <= _MOST_ITEMS:
        return items
    last = len(items) - 1
    return [items[round(at * last / (_MOST_ITEMS - 1))] for at in range(_MOST_ITEMS)]


def _place(index: int, entry: Entry) -> dict[str, Any]:
    return {"index": index, "step": entry.step, "wall": entry.wall}


def _cut(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}… ({len(text):,} characters)"


def _bins(rows: Sequence[Sequence[float]]) -> list[list[Any]]:
    """At most 64 bins: neighbours are joined."""
    width = -(-len(rows) // _MOST_BINS) or 1
    joined = [rows[at : at + width] for at in range(0, len(rows), width)]
    return [[plain(some[0][0]), plain(some[-1][1]), plain(sum(row[2] for row in some))] for some in joined]
