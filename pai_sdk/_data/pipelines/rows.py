"""What a page displays of a stored run of a pipeline."""

from __future__ import annotations

import json
from typing import Any

from pai_sdk._data.pipelines.picture import run_svg
from pai_sdk._data.pipelines.records import PipelineRunRecord, RunRecords, StepRecord

_MAX_STEPS = 2000
_MAX_DRAWN = 20_000  # boxes and lines; about 2 MB
_MAX_TEXT_LENGTH = 2000


def run_row(run_id: str, records: RunRecords, run: PipelineRunRecord) -> dict[str, Any]:
    """Returns the row of a run: id, pipeline, status, times, and the number of steps."""
    return {**_row(run_id, records, run), "steps": len(run.steps)}


def run_detail(run_id: str, records: RunRecords, run: PipelineRunRecord) -> dict[str, Any]:
    """Returns a run with its parameters, its steps, and its picture as SVG; a large one has no picture."""
    steps = run.ordered(records.read_steps())
    drawn = len(steps) + sum(len(step["needs"]) for step in run.steps)
    return {
        **_row(run_id, records, run),
        "parameters": {name: json.dumps(value)[:_MAX_TEXT_LENGTH] for name, value in run.parameters.items()},
        "steps": [step_row(step) for step in steps.values()][:_MAX_STEPS],
        "svg": run_svg(run, steps) if drawn <= _MAX_DRAWN else "",
    }


def step_row(step: StepRecord) -> dict[str, Any]:
    """Returns the row of a step."""
    return {
        "name": step.name,
        "status": step.status,
        "job_id": step.job_id,
        "reason": step.reason[:_MAX_TEXT_LENGTH],
        "error": step.error[:_MAX_TEXT_LENGTH],
        "started_at": step.started_at,
        "ended_at": step.ended_at,
    }


def _row(run_id: str, records: RunRecords, run: PipelineRunRecord) -> dict[str, Any]:
    return {
        "id": run_id,
        "pipeline": run.pipeline,
        "status": records.status_of(run),
        "created_at": run.created_at,
        "ended_at": run.ended_at,
    }
