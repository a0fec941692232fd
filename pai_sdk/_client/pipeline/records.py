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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal
from urllib.parse import quote

from pai_sdk._data.storage.store import Store
from pai_sdk.errors import ObjectNotFoundError, RunNotFoundError

StepStatus = Literal["waiting", "running", "succeeded", "cached", "skipped", "failed", "blocked", "stopped"]

FINISHED = ("succeeded", "cached", "skipped")
"""The statuses of a step that is not run again when the run is resumed."""

_READERS = 16
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
        except (ObjectNotFoundError, ValueError, TypeError):  # TypeError: a file of another program
            message = f"{self.uri} is not the run of a pipeline; a run is the folder runs/ID of a store"
            raise RunNotFoundError(message, run_id=self.uri) from None

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
        except (ValueError, TypeError) as error:
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


def _supported_fields(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that this release knows; another release may have written the record."""
    names = {entry.name for entry in fields(kind)}
    return {name: value for name, value in content.items() if name in names}
