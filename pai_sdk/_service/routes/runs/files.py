"""Routes of the files of runs: browse, preview and download."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from pai_sdk._data.storage.base import Store
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.budgets import DOWNLOAD, RUNS, BudgetedRoute, Work, WorkOf, within
from pai_sdk._service.services.runs.files import (
    files_of_zip,
    list_entries,
    list_stores,
    no_file,
    read_preview,
    read_version,
    store_of,
    zip_chunks,
)
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.services.runs.source import ROOT_FOLDER, RunsOf, RunSource
from pai_sdk._service.services.tickets import Tickets
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.base import response_body
from pai_sdk._wire.runs import Download, FileList, NewDownload
from pai_sdk.errors import InvalidInputError, StorageError

router = APIRouter(route_class=BudgetedRoute)

_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
# Control characters, and those that reverse the displayed order, as in `report\u202egnp.exe`.
_NOT_IN_A_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BYTES = "application/octet-stream"


@router.get("/api/v1/runs/{run_id:path}/files", response_model=FileList)
@within(RUNS)
def list_files_of_run(
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    path: Annotated[str, Query(max_length=4096, description="A folder; the top without it.")] = "",
) -> Response:
    """List a folder of the files of a run: outputs by channel, checkpoints, logs.

    The size of a folder is that of all files in it, as far as they can be counted in about two seconds; it is at
    least that large if `is_partial` is true.
    """
    stores = runs.files(run_id)
    folder = path.strip("/")
    if not folder and ROOT_FOLDER not in stores:
        return json_response({"path": "", "entries": list_stores(stores, work), "truncated": False}, LIVE)
    store, within_store = store_of(stores, folder)
    entries, is_truncated = list_entries(store, within_store, work)
    # No model: the name of a file on a disk can be invalid Unicode.
    body = {"path": folder, "entries": entries, "truncated": is_truncated}
    if store.uri.startswith("oss://"):  # other programs can read it there
        body["uri"] = store.uri + within_store
    return json_response(body, LIVE)


@router.get(
    "/api/v1/runs/{run_id:path}/files/preview", response_class=Response, responses={200: {"content": {_BYTES: {}}}}
)
@within(RUNS)
def preview_file(
    runs: RunsOf,
    run_id: str,
    path: Annotated[str, Query(min_length=1, max_length=4096, description="A file.")],
) -> Response:
    """Read the beginning of a file, at most 1 MiB; of a picture, all of it up to 8 MiB.

    The bytes are always an attachment without a type, so that no browser shows them as a document.
    """
    store, within_store = store_of(runs.files(run_id), path.strip("/"))
    headers = {"Content-Disposition": "attachment", "Cache-Control": "no-store"}
    return Response(read_preview(store, within_store), media_type=_BYTES, headers=headers)


@router.post("/api/v1/runs/{run_id:path}/downloads", response_model=Download)
@within(RUNS)
def prepare_download(request: Request, runs: RunsOf, work: WorkOf, run_id: str, body: NewDownload) -> Response:
    """Create a one-time URL of a file, a folder or the log of a run, valid for a minute.

    A link of the page sends no key. A folder has at most 20,000 files and 100 GiB.
    """
    principal = request.scope["state"]["principal"]
    download = body.model_copy(update={"path": body.path.strip("/")})
    if download.kind == "log":
        runs.log(run_id, download.instance)
    elif not download.path and download.kind == "file":
        raise invalid_parameter("path: names a file.")
    else:
        store, path = store_of(runs.files(run_id), download.path)
        if download.kind == "folder":
            files_of_zip(store, path, work)
        else:
            _require_file(store, path, body.path)
    ticket = _tickets(request).new_ticket((principal, run_id, download))
    return json_response(response_body(Download(url=f"/ui/download/{ticket}")), LIVE)


@router.get("/ui/download/{ticket}", include_in_schema=False)
@within(DOWNLOAD)
def download_file(request: Request, work: WorkOf, ticket: str) -> Response:
    """Download the content of a one-time URL as an attachment, with the rights of the user who created the URL."""
    ticketed = _tickets(request).redeem(ticket)
    if ticketed is None:
        raise WireError(403, "TicketNotValid", "The address was used or has expired; download the file again.")
    principal, run_id, download = ticketed
    request.scope["state"]["principal"] = principal  # the gate then ends this download when the key is revoked
    runs: RunSource = request.app.state.context.runs.visible_to(principal)
    name, chunks = _content_of(runs, run_id, download, work)
    name = _NOT_IN_A_NAME.sub("_", name)
    plain = _NOT_IN_A_FILE_NAME.sub("-", name).strip("-.")[:100] or "file"
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name.encode(errors='replace'))}"
    headers = {"Content-Disposition": disposition, "Cache-Control": "no-store"}
    return StreamingResponse(work.stream_chunks(chunks), media_type=_BYTES, headers=headers)


def _content_of(runs: RunSource, run_id: str, download: NewDownload, work: Work) -> tuple[str, Iterator[bytes]]:
    """Returns the name and the chunks of a download."""
    if download.kind == "log":
        log = runs.log(run_id, download.instance)
        name = "-".join(filter(None, (run_id.replace("/", "-"), download.instance)))
        return (f"{name}.log.gz", log.gzip()) if download.gzip else (f"{name}.log", log.chunks())
    store, path = store_of(runs.files(run_id), download.path)
    name = download.path.rpartition("/")[2] or run_id.rpartition("/")[2]
    if download.kind == "folder":
        files, unlisted = files_of_zip(store, path, work)
        return f"{name}.zip", zip_chunks(store, files, path, name, unlisted=unlisted)
    _require_file(store, path, download.path)
    return name, read_version(store, path)


def _require_file(store: Store, path: str, name: str) -> None:
    """Raises the error for a missing file."""
    try:
        store.head(path)
    except (StorageError, InvalidInputError) as error:
        raise no_file(name) from error


def _tickets(request: Request) -> Tickets[tuple[Principal, str, NewDownload]]:
    tickets: Tickets[tuple[Principal, str, NewDownload]] = request.app.state.downloads
    return tickets
