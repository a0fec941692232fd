"""Drives a run: claims it, runs its steps, then those that run at the end, and notes how it ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pai_sdk.errors import PipelineFailed, PipelineStopped
from pai_sdk.job.follow.polling import FollowPolicy
from pai_sdk.pipeline.cache import StepCache
from pai_sdk.pipeline.engine import PipelineEngine, RunValues
from pai_sdk.pipeline.execution import StepExecution
from pai_sdk.pipeline.pipeline_run import PipelineRun
from pai_sdk.pipeline.records import ENDED, PipelineRunRecord, RunRecords, StepRecord
from pai_sdk.pipeline.steps import PipelineStep
from pai_sdk.pipeline.table import RunDisplay
from pai_sdk.storage.claims import claimed

__all__ = ["drive"]


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
    """Run all steps that have not ended; see `Pipeline.run`.

    Args:
        steps: of the pipeline.
        run: the run.
        records: keep it.
        earlier: executions of earlier runs.
        parallel: how many calls and jobs run at once.
        show: whether to show it.
        on_interrupt: effect of Ctrl-C on running jobs: `detach` or `stop`.
        policy: how patiently to follow jobs.

    Raises:
        InUseError: another process works on the run.
        PipelineFailed: steps have failed.
        PipelineStopped: the run was stopped on request.
    """
    with claimed(records.store) as claim:
        records.forget_stop()
        known = records.read_steps()
        run.status, run.ended_at = "running", None
        records.write_run(run)
        executions: dict[str, str] = {}
        values = RunValues(run, known)
        execution = StepExecution(run, records, earlier, values, executions, uses_cache=run.uses_cache)
        is_stopped = False
        with RunDisplay(run, steps, known, records.uri, shown=show) as display:
            for at_end in (False, True):
                chosen = [step for step in steps if step.on_exit == at_end]
                engine = PipelineEngine(
                    chosen,
                    records,
                    known,
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
                _leave_out_removed(steps, known, records)
        failures = {name: one.error for name, one in known.items() if one.status == "failed" and one.error}
        run.status = "stopped" if is_stopped else "failed" if failures else "succeeded"
        run.ended_at = time.time()
        records.write_run(run)
    leaves: dict[str, Any] = {name: text for name, text in failures.items() if not _is_each(known, name)}
    if is_stopped:
        raise PipelineStopped(records.uri, leaves or failures)
    if failures:
        raise PipelineFailed(leaves or failures, run=records.uri)
    return PipelineRun(records, run, known, shown_in_cell=display.shown_in_cell)


def _leave_out_removed(steps: Sequence[PipelineStep], known: dict[str, StepRecord], records: RunRecords) -> None:
    """Steps of an earlier process that the pipeline no longer has do not count: they neither fail nor run."""
    names = {step.name for step in steps}
    for name, one in known.items():
        parent, _, number = name.rstrip("]").rpartition("[")
        is_child = parent in names and (not known[parent].is_success or int(number) < known[parent].children)
        if name not in names and not is_child and one.status not in ENDED:
            left = f"; its job {one.job_id} was not stopped" if one.status == "running" and one.job_id else ""
            one.status, one.reason, one.error = "skipped", f"it is no longer in the pipeline{left}", ""
            records.write_step(one)


def _is_each(known: dict[str, Any], name: str) -> bool:
    return bool(known[name].children)


def _interrupted(records: RunRecords, *, stopped: bool) -> str:
    jobs = "jobs were stopped" if stopped else "jobs that run go on"
    return f"the run {records.uri} was interrupted; {jobs}. pipeline.resume() goes on with it"
