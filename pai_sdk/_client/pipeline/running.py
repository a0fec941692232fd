"""Drives a run: claims it, runs its steps, then those of `on_exit`, and records its outcome."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.pipeline.cache import StepCache
from pai_sdk._client.pipeline.engine import PipelineEngine, RunValues
from pai_sdk._client.pipeline.execution import StepExecution
from pai_sdk._client.pipeline.pipeline_run import PipelineRun
from pai_sdk._client.pipeline.steps import PipelineStep
from pai_sdk._client.pipeline.table import RunDisplay
from pai_sdk._data.pipelines.records import FINISHED, PipelineRunRecord, RunRecords, StepRecord
from pai_sdk._data.storage.claims import claimed
from pai_sdk.errors import PipelineFailed, PipelineStopped


def drive(
    steps: Sequence[PipelineStep],
    run: PipelineRunRecord,
    records: RunRecords,
    earlier: StepCache,
    *,
    parallel: int,
    show: bool,
    on_interrupt: str,
    policy: FollowPolicy,
) -> PipelineRun:
    """Runs all unfinished steps; see `Pipeline.run`."""
    with claimed(records.store) as claim:
        records.clear_stop_request()
        step_records = records.read_steps()
        run.status, run.ended_at = "running", None
        records.write_run(run)
        executions: dict[str, str] = {}
        values = RunValues(run, step_records)
        execution = StepExecution(run, records, earlier, values, executions, uses_cache=run.uses_cache)
        is_stopped = False
        with RunDisplay(run, steps, step_records, records.uri, is_enabled=show) as display:
            for at_end in (False, True):
                chosen = [step for step in steps if step.on_exit == at_end]
                engine = PipelineEngine(
                    chosen,
                    records,
                    step_records,
                    execution,
                    executions,
                    claim,
                    parallel=parallel,
                    policy=policy,
                    on_change=display.update,
                    can_stop=not at_end,
                )
                try:
                    engine.run()
                except KeyboardInterrupt:
                    engine.interrupt(stops=on_interrupt == "stop")
                    raise KeyboardInterrupt(_interrupted(records, stopped=on_interrupt == "stop")) from None
                is_stopped = is_stopped or engine.is_stopped
                _skip_removed_steps(steps, step_records, records)
        failures = {
            name: record.error
            for name, record in step_records.items()
            if record.status == "failed" and record.error
        }
        run.status = "stopped" if is_stopped else "failed" if failures else "succeeded"
        run.ended_at = time.time()
        records.write_run(run)
    leaves: dict[str, Any] = {name: text for name, text in failures.items() if not step_records[name].children}
    if is_stopped:
        raise PipelineStopped(records.uri, leaves or failures)
    if failures:
        raise PipelineFailed(leaves or failures, run=records.uri)
    return PipelineRun(records, run, step_records, displayed_in_cell=display.displayed_in_cell)


def _skip_removed_steps(
    steps: Sequence[PipelineStep], step_records: dict[str, StepRecord], records: RunRecords
) -> None:
    """Marks unfinished steps that the pipeline no longer has as skipped."""
    names = {step.name for step in steps}
    for name, record in step_records.items():
        parent, _, number = name.rstrip("]").rpartition("[")
        is_child = parent in names and (
            not step_records[parent].is_success or int(number) < step_records[parent].children
        )
        if name not in names and not is_child and record.status not in FINISHED:
            job_note = (
                f"; its job {record.job_id} was not stopped"
                if record.status == "running" and record.job_id
                else ""
            )
            record.status, record.reason, record.error = (
                "skipped",
                f"it is no longer in the pipeline{job_note}",
                "",
            )
            records.write_step(record)


def _interrupted(records: RunRecords, *, stopped: bool) -> str:
    jobs = "jobs were stopped" if stopped else "running jobs continue"
    return f"the run {records.uri} was interrupted; {jobs}. pipeline.resume() continues it"
