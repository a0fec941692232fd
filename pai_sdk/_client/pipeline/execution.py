"""Executes one step: its condition, its cache, its call or the submission of its job. In a worker thread."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.pipeline.cache import StepCache
from pai_sdk._client.pipeline.fingerprints import (
    digest,
    function_of,
    parts_of_call,
    parts_of_paths,
    parts_of_plan,
    parts_of_search,
)
from pai_sdk._client.pipeline.references import (
    Condition,
    OutputReference,
    ValueSource,
    as_json,
    references_in,
    resolved,
)
from pai_sdk._client.pipeline.searches import SearchCall
from pai_sdk._client.pipeline.steps import CallWork, EachWork, JobWork, PipelineStep
from pai_sdk._client.session import Session
from pai_sdk._client.submit.job_names import new_folder
from pai_sdk._core.names.hints import type_problem
from pai_sdk._core.short_traceback import error_text
from pai_sdk._data.pipelines.records import (
    FOLDER_LABEL,
    PIPELINE_LABEL,
    RUN_LABEL,
    STEP_LABEL,
    PipelineRunRecord,
    RunRecords,
    StepRecord,
)
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.request import MAX_LABEL_LENGTH
from pai_sdk.errors import InvalidInputError, PaiError, Problem

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class LiveStep:
    """A step of a run that this process works on.

    One thread at a time uses it: the worker that executes it, then the thread of the engine.
    """

    step: PipelineStep
    record: StepRecord
    job: TrainingJob | None = None  # of the last attempt
    deadline: float | None = None  # of the attempt, on the monotonic clock
    open_needs: int = 0  # the number of unfinished steps that it needs
    children: list[LiveStep] = field(default_factory=list)  # of an `each`
    parent: LiveStep | None = None  # the `each` to which it belongs
    is_abandoned: bool = False  # its timeout has passed, and late results of its function are ignored
    is_recorded: bool = False  # the engine has processed its end; the status of its record may be final before
    attempts_before: int = 0  # failed attempts before the run was resumed, which do not count as retries

    @property
    def name(self) -> str:
        """Returns the name of the step."""
        return self.step.name


class StepExecution:
    """Executes steps of one run. Thread-safe, with one thread for each step."""

    def __init__(
        self,
        run: PipelineRunRecord,
        records: RunRecords,
        cache: StepCache,
        values: ValueSource,
        executions: Mapping[str, str],
        *,
        uses_cache: bool,
    ) -> None:
        self._run = run
        self._records = records
        self._cache = cache
        self._values = values
        self._executions = executions
        self._uses_cache = uses_cache

    def start(self, live: LiveStep) -> list[Any] | None:
        """Executes a step to the end of its call or the submission of its job; returns the values of an `each`."""
        record, step = live.record, live.step
        if step.when is not None and not _holds(step.when, self._values):
            self.end(live, "skipped", reason=f"the condition {step.when!r} is false")
            return None
        if isinstance(step.work, EachWork):
            values = resolved(step.work.values, self._values)
            if not isinstance(values, list):
                raise TypeError(f"values: {step.work.values!r}: {type_problem('a list', values)}")
            record.status, record.children, record.started_at = "running", len(values), time.time()
            self._records.write_step(record)
            return values
        if isinstance(step.work, CallWork):
            self._call(live, step.work)
        else:
            self._submit(live, step.work)
        return None

    # ---- calls

    def _call(self, live: LiveStep, work: CallWork) -> None:
        record = live.record
        arguments = resolved(dict(work.arguments), self._values)
        executions, function = self._executions_of(work.arguments), work.function
        if isinstance(function, SearchCall):
            record.parts = parts_of_search(function, arguments, executions)
            function = function.within(self._records.uri, record.name)
        else:
            record.parts = parts_of_call(function, arguments, executions)
        if self._is_cached(live, None):
            return
        self._start_attempt(live)
        result = _result(function(**arguments))
        if not live.is_abandoned:
            record.result = result
            if not isinstance(function, SearchCall):
                record.parts |= parts_of_paths(arguments)
            # The cache first: a process that is killed in between repeats the call, and loses no result.
            if live.step.cache and not live.step.on_exit:
                self._cache.put(record, None)
            self.end(live, "succeeded")

    # ---- jobs

    def _submit(self, live: LiveStep, work: JobWork) -> None:
        record, session = live.record, work.submitter.resolved_session()
        if record.status == "running" and record.job_id:  # another process has submitted the job
            live.job = session.get_job(record.job_id)
            self._set_deadline(live)
            return
        is_again = record.status == "running"  # a process was killed before it recorded the id of the job
        key = self._key(record.name, record.attempt if is_again else record.attempt + 1)
        submitter, plan = work.plan(
            resolved(work.bindings, self._values),
            name=job_name(self._run.pipeline, record.name),
            key=key,
            labels=self._labels(record, session),
        )
        folder = new_folder(plan.request.training_job_name, is_explicit=True, key=key)
        parts = parts_of_plan(
            plan, self._executions_of(work.inputs), session, function_of(submitter), job_folder=folder
        )
        if is_again and parts != record.parts:  # it is another step now: only a job that is there counts
            backend = session.backend_for(submitter.instance_type, submitter.api)
            existing_job = next(iter(backend.find(plan.request, of_any_age=True)), None)
            if existing_job is None:
                record.status = "waiting"
                self._submit(live, work)
                return
        if is_again:
            self._set_deadline(live)
        else:
            record.parts = parts
            if self._is_cached(live, session):
                return
            self._start_attempt(live)
        job = submitter.submit(plan, show_logs=False)
        if live.is_abandoned:  # the timeout passed during the submission
            job.stop()
            return
        live.job = job
        record.job_id = job.id
        self._records.write_step(record)

    def _labels(self, record: StepRecord, session: Session) -> dict[str, str]:
        """Returns the labels by which the page of the service finds the run."""
        labels = {
            RUN_LABEL: self._run.run_id,
            STEP_LABEL: record.name,
            PIPELINE_LABEL: self._run.pipeline,
            FOLDER_LABEL: self._records.uri,
        }
        # A local folder is of use to a service of this machine only, and its name is not for others.
        is_readable = labels[FOLDER_LABEL].startswith("oss://") or session.is_embedded
        if not is_readable or len(labels[FOLDER_LABEL]) > MAX_LABEL_LENGTH:
            del labels[FOLDER_LABEL]
        return labels

    def on_end_of_job(self, live: LiveStep, job: JobRecord) -> None:
        """Records the outputs of a job that has succeeded."""
        record = live.record
        record.outputs = dict(job.outputs)
        if live.step.cache and isinstance(live.step.work, JobWork):
            self._cache.put(record, live.step.work.submitter.resolved_session())
        self.end(live, "succeeded")  # last: after a kill in between, the next process records the end again

    def _key(self, name: str, attempt: int) -> str:
        # Equal in all processes: after a kill, the next one repeats the submission, and finds the job by the key.
        return f"{self._run.run_id}:{hashlib.sha256(name.encode()).hexdigest()[:12]}:{attempt}"

    # ---- shared

    def end(self, live: LiveStep, status: Any, *, reason: str = "", error: str = "") -> None:
        """Records the end of a step."""
        record = live.record
        record.status, record.ended_at, record.error = status, time.time(), error
        record.reason = reason or record.reason
        record.started_at = record.started_at or record.ended_at
        self._records.write_step(record)

    def _start_attempt(self, live: LiveStep) -> None:
        record = live.record
        record.attempt += 1
        record.status, record.error, record.job_id = "running", "", ""
        record.execution = f"{self._run.run_id}/{record.name}/{record.attempt}"
        record.started_at = time.time()
        self._set_deadline(live)
        self._records.write_step(record)

    def _set_deadline(self, live: LiveStep) -> None:
        """Sets the deadline of an attempt, which another process may have started."""
        if live.step.timeout_s is not None:
            age_s = max(0.0, time.time() - (live.record.started_at or time.time()))
            live.deadline = time.monotonic() + live.step.timeout_s - age_s

    def _is_cached(self, live: LiveStep, session: Any) -> bool:
        record = live.record
        if live.step.on_exit:
            record.reason = "it is run at the end of each run"
            return False
        if not live.step.cache or not self._uses_cache:
            record.reason = "its cache is off" if self._uses_cache else "the cache is off in this run"
            return False
        if record.attempt:  # an attempt of this run has failed or was interrupted
            record.reason = record.reason or "an attempt before it has failed"
            return False
        execution, reason = self._cache.find(record.name, record.parts, session)
        record.reason = reason
        if execution is None:
            return False
        record.execution, record.job_id = execution["execution"], execution["job_id"]
        record.result, record.outputs = execution["result"], execution["outputs"]
        self.end(live, "cached")
        return True

    def _executions_of(self, bindings: Mapping[str, Any]) -> dict[str, str]:
        """Returns, for each value with outputs of other steps, a hash with the executions that made them."""
        return {
            name: digest(self._with_executions(value))
            for name, value in bindings.items()
            if any(isinstance(reference, OutputReference) for reference in references_in(value))
        }

    def _with_executions(self, value: Any) -> Any:
        if isinstance(value, OutputReference):
            return [repr(value), self._executions.get(value.step.name, "")]
        if isinstance(value, Mapping):
            return {name: self._with_executions(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._with_executions(item) for item in value]
        return resolved(value, self._values)


def reason_of(error: BaseException) -> str:
    """Formats an error for the record of a step."""
    text = error_text(error)
    return text if isinstance(error, PaiError) else f"{type(error).__name__}: {text}"


def _result(value: Any) -> Any:
    """Converts the return value of a function to JSON values."""
    try:
        return as_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "return None, booleans, numbers, strings, lists and mappings"
        raise InvalidInputError(
            [Problem("the result of the function", f"cannot be kept: {error}", hint)]
        ) from error


def _holds(when: Any, values: ValueSource) -> bool:
    return when.holds(values) if isinstance(when, Condition) else bool(resolved(when, values))


def job_name(pipeline: str, step: str) -> str:
    """Returns the name of a step's job."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", f"{pipeline}-{step}").strip("-")
