"""The record of a run of a pipeline: a folder in a store, with one file for each step.

    run.json            the pipeline, its parameters, the definitions of its steps
    steps/<name>.json   the state of a step; written before and after each action
    stop                a stop request
    driver.lock, …      the claim of the process that works on the run (`storage.claims`)

Each file is replaced atomically. The idempotency key of a job is derived from the run, the step and the attempt:
if a process is killed between the submission and the record, the next one finds the job.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args
from urllib.parse import quote

from pai_sdk._data.storage.claims import is_claimed
from pai_sdk._data.storage.store import Store
from pai_sdk.errors import ObjectNotFoundError, RunNotFoundError

StepStatus = Literal["waiting", "running", "succeeded", "cached", "skipped", "failed", "blocked", "stopped"]

FINISHED = ("succeeded", "cached", "skipped")
"""The statuses of a step that is not run again when the run is resumed."""

RUN_LABEL, STEP_LABEL, PIPELINE_LABEL = "pai-sdk-pipeline-run", "pai-sdk-step", "pai-sdk-pipeline"
"""Labels of the job of a step: the id of the run, the name of the step, the name of the pipeline."""

FOLDER_LABEL = "pai-sdk-pipeline-folder"
"""Label of the job of a step: the URI of the run's folder, if the service can read it and it fits into a label."""

_READERS = 16
# A number too large for a float is an OverflowError, and objects nested too deeply are a RecursionError.
_DAMAGED = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
_RUN, _STEPS, _STOP = "run.json", "steps/", "stop"


@dataclass
class StepRecord:
    """The state of a step in a run."""

    name: str
    # `cached`: an earlier execution counts. `skipped`: its condition does not hold. `blocked`: a step that it
    # needs has failed.
    status: StepStatus = "waiting"
    attempt: int = 0  # counts from 1; 0 before the first one
    execution: str = ""  # whose outputs these are; an earlier one if the step is cached
    job_id: str = ""  # of the last attempt
    result: Any = None  # of the function
    outputs: dict[str, str] = field(default_factory=dict)  # channel to URI
    reason: str = ""  # why it was run, taken from the cache, skipped or blocked
    error: str = ""  # why it failed
    started_at: float | None = None  # seconds since 1970
    ended_at: float | None = None  # seconds since 1970
    # Hashes of all that the outputs depend on, for the reason of the next run.
    parts: dict[str, str] = field(default_factory=dict)
    children: int = 0  # for `each`, the number of steps that it has become

    def __post_init__(self) -> None:
        # Another program, or another user of the bucket, can have written the file.
        texts = (self.name, self.job_id, self.reason, self.error)
        times = (self.started_at, self.ended_at)
        if (
            self.status not in get_args(StepStatus)
            or not all(isinstance(text, str) for text in texts)
            or not _are_times(times)
            or not isinstance(self.children, int)
        ):
            raise ValueError("a field of the step has another type")

    @property
    def is_success(self) -> bool:
        """Returns whether the step has outputs."""
        return self.status in ("succeeded", "cached")

    @property
    def is_finished(self) -> bool:
        """Returns whether the step has finished, with any outcome."""
        return self.status not in ("waiting", "running")


@dataclass
class PipelineRunRecord:
    """The state of a run; times are in seconds since 1970."""

    run_id: str  # also in a label of the jobs of its steps
    pipeline: str
    parameters: dict[str, Any]
    steps: list[dict[str, Any]]  # name, kind and needs of each step, in the order of their description
    status: str = "running"  # `running`, `succeeded`, `failed` or `stopped`
    created_at: float = 0.0
    ended_at: float | None = None
    uses_cache: bool = True  # whether earlier executions count, also when the run is resumed

    def __post_init__(self) -> None:
        # As for a step.
        earlier: set[str] = set()
        for step in self.steps:
            if not isinstance(step["name"], str) or not earlier.issuperset(step["needs"]):
                raise ValueError("the steps have another form")
            earlier.add(step["name"])
        texts = (self.run_id, self.pipeline, self.status)
        times = (self.created_at, self.ended_at)
        if (
            not all(isinstance(text, str) for text in texts)
            or not _are_times(times)
            or self.created_at is None
            or not isinstance(self.parameters, dict)
        ):
            raise ValueError("a field of the run has another type")

    def ordered(self, steps: Mapping[str, StepRecord]) -> dict[str, StepRecord]:
        """Returns the states of all steps by name, in the order in which they were described."""
        names = [step["name"] for step in self.steps]
        records = {name: steps.get(name) or StepRecord(name) for name in names}
        for name in sorted(steps, key=_natural):
            records.setdefault(name, steps[name])
        return records


class RunRecords:
    """Reads and writes the folder of a run."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def uri(self) -> str:
        """Returns the URI of the folder."""
        return self.store.uri

    def write_run(self, run: PipelineRunRecord) -> None:
        """Writes the record of the run."""
        self._write(_RUN, asdict(run))

    def read_run(self) -> PipelineRunRecord:
        """Reads the record of the run; raises RunNotFoundError without a valid one."""
        try:
            return PipelineRunRecord(**_supported_fields(PipelineRunRecord, self._read(_RUN)))
        except (ObjectNotFoundError, *_DAMAGED):  # a file of another program
            message = f"{self.uri} is not the run of a pipeline; a run is the folder runs/ID of a store"
            raise RunNotFoundError(message, run_id=self.uri) from None

    def status_of(self, run: PipelineRunRecord) -> str:
        """Returns the status of the run; `interrupted` if no process works on it before its end."""
        return "interrupted" if run.status == "running" and not is_claimed(self.store) else run.status

    def write_step(self, step: StepRecord) -> None:
        """Replaces the state of a step."""
        content = {k: v for k, v in vars(step).items() if k == "result" or v not in (None, "", 0, {})}
        self._write(f"{_STEPS}{quote(step.name, safe='')}.json", content)

    def read_steps(self) -> dict[str, StepRecord]:
        """Reads the states of all started steps, by name; raises RunNotFoundError for a damaged file."""
        paths = [file.path for file in self.store.list(_STEPS) if file.path.endswith(".json")]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="pai-steps") as pool:
            return {step.name: step for step in pool.map(self._read_step, paths)}

    def _read_step(self, path: str) -> StepRecord:
        try:
            return StepRecord(**_supported_fields(StepRecord, self._read(path)))
        except _DAMAGED as error:
            message = f"{self.uri}{path} is damaged ({error}); without the file, its step is run again"
            raise RunNotFoundError(message, run_id=self.uri) from error

    def request_stop(self) -> None:
        """Requests a stop from the process that works on the run."""
        self.store.write(_STOP, b"")

    @property
    def is_stop_requested(self) -> bool:
        """Returns whether a stop was requested."""
        try:
            self.store.head(_STOP)
        except ObjectNotFoundError:
            return False
        return True

    def clear_stop_request(self) -> None:
        """Removes a stop request, when the run is resumed."""
        if self.is_stop_requested:
            self.store.delete([_STOP])

    def _write(self, path: str, content: dict[str, Any]) -> None:
        self.store.write(path, json.dumps(content).encode())

    def _read(self, path: str) -> dict[str, Any]:
        content = json.loads(b"".join(self.store.read(path)))
        if not isinstance(content, dict):
            raise ValueError(f"{path} is not a record")
        return content


def _are_times(values: Iterable[object]) -> bool:
    return all(value is None or (isinstance(value, int | float) and math.isfinite(value)) for value in values)


def _natural(name: str) -> tuple[str, int]:
    base, _, number = name.rstrip("]").rpartition("[")
    return (base, int(number)) if base and number.isdigit() else (name, -1)


def _supported_fields(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that this release knows; another release may have written the record."""
    names = {entry.name for entry in fields(kind)}
    return {name: value for name, value in content.items() if name in names}
