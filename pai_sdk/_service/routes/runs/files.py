"""Routes of the files of runs: browse and download."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.budgets import DOWNLOAD, RUNS, BudgetedRoute, WorkOf, within
from pai_sdk._service.services.runs.files import list_entries, no_file, store_of
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.services.runs.source import ROOT_FOLDER, RunsOf, RunSource
from pai_sdk._service.services.tickets import Tickets
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.base import response_body
from pai_sdk._wire.runs import Download, FileList, NewDownload
from pai_sdk.errors import InvalidInputError, StorageError

router = APIRouter(route_class=BudgetedRoute)

_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")
# Control characters, and those that reverse the displayed order, as in `report\u202egnp.exe`.
_NOT_IN_A_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@router.get("/api/v1/runs/{run_id:path}/files", response_model=FileList)
@within(RUNS)
def list_files_of_run(
    runs: RunsOf,
    work: WorkOf,
    run_id: str,
    path: Annotated[str, Query(max_length=4096, description="A folder; the top without it.")] = "",
) -> Response:
    """List a folder of the files of a run: outputs by channel, checkpoints, logs."""
    stores = runs.files(run_id)
    folder = path.strip("/")
    if not folder and ROOT_FOLDER not in stores:
        channels = [{"name": name, "is_folder": True, "size_bytes": None, "modified_at": None} for name in stores]
        return json_response({"path": "", "entries": channels, "truncated": False}, LIVE)
    store, within_store = store_of(stores, folder)
    entries, is_truncated = list_entries(store, within_store, work)
    # No model: the name of a file on a disk can be invalid Unicode.
    return json_response({"path": folder, "entries": entries, "truncated": is_truncated}, LIVE)


@router.post("/api/v1/runs/{run_id:path}/downloads", response_model=Download)
@within(RUNS)
def prepare_download(request: Request, runs: RunsOf, run_id: str, body: NewDownload) -> Response:
    """Create a one-time URL of a file of a run, valid for a minute: a link of the page sends no key."""
    store, path = store_of(runs.files(run_id), body.path.strip("/"))
    try:
        store.head(path)
    except (StorageError, InvalidInputError) as error:
        raise no_file(body.path) from error
    ticket = _tickets(request).new_ticket((request.scope["state"]["principal"], run_id, body.path.strip("/")))
    return json_response(response_body(Download(url=f"/ui/download/{ticket}")), LIVE)


@router.get("/ui/download/{ticket}", include_in_schema=False)
@within(DOWNLOAD)
def download_file(request: Request, work: WorkOf, ticket: str) -> Response:
    """Download the file of a one-time URL as an attachment, with the rights of the user who created the URL."""
    download = _tickets(request).redeem(ticket)
    if download is None:
        raise WireError(403, "TicketNotValid", "The address was used or has expired; download the file again.")
    principal, run_id, path = download
    request.scope["state"]["principal"] = principal  # the gate then ends this download when the key is revoked
    runs: RunSource = request.app.state.context.runs.visible_to(principal)
    store, within_store = store_of(runs.files(run_id), path)
    try:
        info = store.head(within_store)
    except (StorageError, InvalidInputError) as error:
        raise no_file(path) from error
    name = _NOT_IN_A_NAME.sub("_", path.rpartition("/")[2])
    plain = _NOT_IN_A_FILE_NAME.sub("-", name).strip("-.")[:100] or "file"
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name.encode(errors='replace'))}"
    headers = {"Content-Disposition": disposition, "Cache-Control": "no-store"}
    chunks = store.read(within_store, 0, info.size_bytes)  # a growing file is sent up to its current size
    return StreamingResponse(work.stream_chunks(chunks), media_type="application/octet-stream", headers=headers)


def _tickets(request: Request) -> Tickets[tuple[Principal, str, str]]:
    tickets: Tickets[tuple[Principal, str, str]] = request.app.state.downloads
    return tickets
