"""Routes of images, histograms and texts in the event files of runs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from pai_sdk._service.services.budgets import RUNS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.runs.curve_responses import JSON
from pai_sdk._service.services.runs.media import media_items
from pai_sdk._service.services.runs.responses import LIVE, json_list, tagged
from pai_sdk._service.services.runs.runs import call_manager, get_watched_run
from pai_sdk._service.services.runs.source import RunsOf
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.runs import MediaList

router = APIRouter(prefix="/api/v1/runs/{run_id:path}", route_class=BudgetedRoute)

_KINDS = ("image", "histogram", "text", "audio")
_MAX_IMAGE_BYTES = 15 << 20
_IMAGE_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@router.get("/media", response_model=MediaList)
@within(RUNS)
def list_media(
    request: Request,
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    kind: Annotated[Literal["image", "histogram", "text", "audio"] | None, Query()] = None,
    tag: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """List the tags of images, histograms, texts and audio of a run; with `kind` and `tag`, the items of one tag.

    The response has at most 200 items, spread over the training. Images are fetched one by one.
    """
    run = get_watched_run(runs, run_id)
    summaries = [summary for summary in run.tags().values() if summary.kind in _KINDS]
    tags = [{"tag": summary.tag, "kind": summary.kind, "count": summary.count} for summary in summaries]
    content = json_list("items", media_items(run, kind, tag), {"tags": tags}, work)
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
    """Read one image: PNG, JPEG or GIF, by its first bytes."""
    images = call_manager(get_watched_run(runs, run_id).images, tag, index)
    content: bytes = images[0].content if images else b""
    media_type = next((name for magic, name in _IMAGE_TYPES.items() if content.startswith(magic)), None)
    if media_type is None:
        raise WireError(404, "RUN_IMAGE_NOT_FOUND", f"{tag[:200]!r} has no PNG, JPEG or GIF with index {index}.")
    if len(content) > _MAX_IMAGE_BYTES:
        raise WireError(400, "ImageTooLarge", f"The image has {len(content):,} bytes; read it from the file.")
    work.spend(len(content))
    # The bytes are from a job: without nosniff, a browser could run them as HTML.
    return tagged(request, content, media_type, {**LIVE, "X-Content-Type-Options": "nosniff"})
