"""The output channels of a job: their URIs, their files, and the rows of its trace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._client.backend.base import Backend
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError, Problem

if TYPE_CHECKING:
    from pai_sdk._data.trace.trace_data import TraceData


def output_uri(job_id: str, outputs: Mapping[str, str], channel: str) -> str:
    """Returns the URI of an output channel; raises InvalidInputError if the job has no such channel."""
    if channel not in outputs:
        available = ", ".join(outputs) or "none"
        raise InvalidInputError(
            [Problem("channel", f"job {job_id} has no output {channel!r}", f"it has: {available}")]
        )
    return outputs[channel]


def download_output(backend: Backend, record: JobRecord, channel: str, target: Path, *, progress: bool) -> Path:
    """Downloads an output channel; returns the folder, or the file if the output is one."""
    job_id = record.training_job_id
    uri = output_uri(job_id, record.outputs, channel)
    try:
        return backend.download(uri, target, progress=progress)
    except ObjectNotFoundError as error:
        so_far = "" if record.status.is_terminal else f"; it is {record.status}"
        raise ObjectNotFoundError(
            f"job {job_id} wrote nothing to its output {channel!r}{so_far} ({error})", uri=uri
        ) from error


def trace_of(backend: Backend, record: JobRecord, *, uncommitted: bool) -> TraceData:
    """Returns the rows in the output `trace` of a job, else in the folder `trace` of `model`."""
    from pai_sdk._data.trace.trace_data import trace_in

    folder = record.outputs.get("trace")
    if folder is None:
        folder = f"{output_uri(record.training_job_id, record.outputs, 'model').rstrip('/')}/trace/"
    return trace_in(backend.store(folder), folder, uncommitted=uncommitted)
