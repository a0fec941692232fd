"""Where a trace goes when the caller does not say: into the folder of the run around it."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from pai_sdk.errors import TraceError
from pai_sdk.run.layout import RunLayout, is_run_id
from pai_sdk.run.report import context_here
from pai_sdk.trace.parquet import ParquetSink

__all__ = ["default_sink", "run_id_here"]


def run_id_here() -> str:
    """The id of the job or run around this code; a new one outside of them."""
    context = context_here()
    name = "" if context is None else context.job_id or (context.folder.name if context.folder else "")
    if is_run_id(name):
        return name
    return f"local-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def default_sink(run_id: str) -> ParquetSink:
    """Parquet files in the run's folder: in a job's output channel `trace`, or in `model/trace` without one.

    Outside a job it is `trace` in the folder of the `ReportSession` around this code, or `runs/<run id>/trace`
    below the current folder without one.

    Raises:
        TraceError: the job has neither of the two channels.
    """
    context = context_here()
    if context is None or context.folder is None:
        return ParquetSink(str(Path("runs", run_id, "trace").absolute()))
    if not context.job_id:
        return ParquetSink(RunLayout(str(context.folder)).trace)
    if own := os.environ.get("PAI_OUTPUT_TRACE"):
        return ParquetSink(own)
    if model := os.environ.get("PAI_OUTPUT_MODEL"):
        return ParquetSink(str(Path(model, "trace")))
    raise TraceError(
        "the job has no output channel for its trace; give it one, outputs={'trace': …}, or the writer a sink"
    )
