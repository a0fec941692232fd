"""A run of a pipeline, as any process can read it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._client.display.choice import notebook_cell
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.pipeline.table import run_table
from pai_sdk._core.names.hints import name_hint
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.pipelines.picture import run_svg
from pai_sdk._data.pipelines.records import PipelineRunRecord, RunRecords, StepRecord
from pai_sdk._data.storage.claims import claimed
from pai_sdk._data.storage.store import open_store
from pai_sdk.errors import InUseError

if TYPE_CHECKING:
    from pai_sdk._client.session import Session


@short_tracebacks
class PipelineRun:
    """The state of a run. `PipelineRun.load(uri)` reads it from any process.

    Args:
        records: the folder of the run.
        run: the facts about it; read from the folder by default.
        steps: the states of its steps; read from the folder by default.
        displayed_in_cell: the cell of a notebook that shows the run already.

    Example:
        >>> def jobs_of(uri: str) -> list[str]:
        ...     return [step.job_id for step in PipelineRun.load(uri).steps.values()]
    """

    def __init__(
        self,
        records: RunRecords,
        run: PipelineRunRecord | None = None,
        steps: Mapping[str, StepRecord] | None = None,
        *,
        displayed_in_cell: int | None = None,
    ) -> None:
        self._displayed_in_cell = displayed_in_cell
        self.records = records
        self.record = run or records.read_run()
        self._steps = dict(steps if steps is not None else records.read_steps())

    @classmethod
    def load(cls, uri: str | Path, *, session: Session | None = None) -> PipelineRun:
        """A run by its URI.

        Args:
            uri: the folder of the run.
            session: whose keys open a folder in OSS.

        Raises:
            RunNotFoundError: there is no run.
        """
        return cls(RunRecords(open_store(uri, session)))

    @property
    def uri(self) -> str:
        """The folder of the run."""
        return self.records.uri

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.record.run_id

    @property
    def status(self) -> str:
        """`running`, `succeeded`, `failed`, `stopped`, or `interrupted`: no process works on it before its end."""
        return self.records.status_of(self.record)

    @property
    def steps(self) -> dict[str, StepRecord]:
        """The states of all steps by name, in the order in which they were described."""
        return self.record.ordered(self._steps)

    def __getitem__(self, name: str) -> StepRecord:
        steps = self.steps
        if name not in steps:
            raise KeyError(f"there is no step {name!r}; {name_hint(name, steps)}")
        return steps[name]

    def refresh(self) -> PipelineRun:
        """Read the state anew."""
        return PipelineRun(self.records)

    def stop(self, *, session: Session | None = None) -> bool:
        """Stop the run and its jobs: by the process that works on it, or from here where that is gone.

        Args:
            session: where the jobs are, if they are to be stopped from here; the default session otherwise.

        Returns:
            True if a process was asked to stop the run; it looks every second.

        Raises:
            PaiError: a job cannot be stopped.
        """
        self.records.request_stop()
        try:
            with claimed(self.records.store):
                run = self.records.read_run()
                if run.status == "running":
                    self._stop_locally(run, session)
        except InUseError:
            return True
        return False

    def _stop_locally(self, run: PipelineRunRecord, session: Session | None) -> None:
        for step in self.records.read_steps().values():
            if step.status == "running":
                if step.job_id:
                    TrainingJob.get(step.job_id, session=session).stop()
                step.status, step.ended_at = "stopped", time.time()
                self.records.write_step(step)
        run.status, run.ended_at = "stopped", time.time()
        self.records.write_run(run)

    def svg(self) -> str:
        """A picture of the steps and their states."""
        return run_svg(self.record, self.steps)

    def __repr__(self) -> str:
        return run_table(self.record, self.steps, self.uri)

    def _repr_html_(self) -> str:
        return self.svg()

    def _ipython_display_(self) -> None:
        if self._displayed_in_cell is None or self._displayed_in_cell != notebook_cell():
            raise NotImplementedError  # IPython takes the other representations


def as_dict(run: PipelineRun) -> dict[str, Any]:
    """Returns the run as a dict for JSON."""
    return {
        **vars(run.record),
        "status": run.status,
        "uri": run.uri,
        "steps": [vars(step) for step in run.steps.values()],
    }
