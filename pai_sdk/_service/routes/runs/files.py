"""Routes of the files of runs: browse and download."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from pai_sdk._data.storage.base import Store, checked_path
from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.budgets import DOWNLOAD, RUNS, BudgetedRoute, Work, WorkOf, within
from pai_sdk._service.services.runs.responses import LIVE, json_response
from pai_sdk._service.services.runs.source import ROOT_FOLDER, RunsOf, RunSource
from pai_sdk._service.services.tickets import Tickets
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.base import response_body
from pai_sdk._wire.runs import Download, FileList, NewDownload
from pai_sdk.errors import InvalidInputError, StorageError

__all__ = ["router"]

router = APIRouter(route_class=BudgetedRoute)

_MAX_ENTRIES = 2000
_MAX_FILES = 50_000  # files that one request lists, including subfolders
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
    store, within_store = _store_of(stores, folder)
    entries, is_truncated = _entries(store, within_store, work)
    # No model: the name of a file on a disk can be invalid Unicode.
    return json_response({"path": folder, "entries": entries, "truncated": is_truncated}, LIVE)


@router.post("/api/v1/runs/{run_id:path}/downloads", response_model=Download)
@within(RUNS)
def prepare_download(request: Request, runs: RunsOf, run_id: str, body: NewDownload) -> Response:
    """Create a one-time URL of a file of a run, valid for a minute: a link of the page sends no key."""
    store, path = _store_of(runs.files(run_id), body.path.strip("/"))
    try:
        store.head(path)
    except (StorageError, InvalidInputError) as error:
        raise _not_found(body.path) from error
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
    store, within_store = _store_of(runs.files(run_id), path)
    try:
        info = store.head(within_store)
    except (StorageError, InvalidInputError) as error:
        raise _not_found(path) from error
    name = _NOT_IN_A_NAME.sub("_", path.rpartition("/")[2])
    plain = _NOT_IN_A_FILE_NAME.sub("-", name).strip("-.")[:100] or "file"
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name.encode(errors='replace'))}"
    headers = {"Content-Disposition": disposition, "Cache-Control": "no-store"}
    chunks = store.read(within_store, 0, info.size_bytes)  # a growing file is sent up to its current size
    return StreamingResponse(work.stream_chunks(chunks), media_type="application/octet-stream", headers=headers)


def _tickets(request: Request) -> Tickets[tuple[Principal, str, str]]:
    tickets: Tickets[tuple[Principal, str, str]] = request.app.state.downloads
    return tickets


def _store_of(stores: Mapping[str, Store], path: str) -> tuple[Store, str]:
    """Returns the store of the first part of a path and the remaining path; or the root store and the path."""
    name, subpath = (ROOT_FOLDER, path) if ROOT_FOLDER in stores else path.partition("/")[::2]
    if name not in stores:
        raise _not_found(path)
    try:
        return stores[name], checked_path(subpath) if subpath else ""
    except InvalidInputError as error:
        raise invalid_parameter(f"path: {str(error)[:500]}") from error


def _entries(store: Store, folder: str, work: Work) -> tuple[list[dict[str, Any]], bool]:
    """Returns the entries of a folder, by name, and whether the list is truncated."""
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict[str, Any]] = {}
    num_files = 0
    try:
        for file in store.list(prefix, folders=True, unlisted=lambda path, error: None):
            num_files += 1
            if num_files % 1000 == 0:
                work.check()
            name, separator, _ = file.path[len(prefix) :].partition("/")
            if not name:
                continue
            if num_files > _MAX_FILES or (name not in entries and len(entries) == _MAX_ENTRIES):
                return [*entries.values()], True
            modified_at = None if file.modified_ns is None else file.modified_ns / 1e9
            if separator:
                entry = entries.setdefault(
                    name, {"name": name, "is_folder": True, "size_bytes": 0, "modified_at": modified_at}
                )
                entry["size_bytes"] += file.size_bytes
                entry["modified_at"] = max(entry["modified_at"] or 0.0, modified_at or 0.0) or None
            else:
                entries[name] = {
                    "name": name,
                    "is_folder": False,
                    "size_bytes": file.size_bytes,
                    "modified_at": modified_at,
                }
    except StorageError as error:
        raise _not_found(folder) from error
    return [*entries.values()], False


def _not_found(path: str) -> WireError:
    return WireError(404, "RUN_FILE_NOT_FOUND", f"The run has no file {path[:200]!r}.")
