"""The folder of a pipeline in a store: its runs, and the executions of its steps."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk._client.pipeline.cache import StepCache
from pai_sdk._client.pipeline.pipeline_run import PipelineRun
from pai_sdk._data.pipelines.records import RunRecords
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk.errors import RunNotFoundError

if TYPE_CHECKING:
    from pai_sdk._client.session import Session

logger = logging.getLogger(__name__)


class PipelineFolder:
    """Opens the runs and executions of a pipeline; `session` is the one whose keys open a store in OSS."""

    def __init__(self, uri: str | Path, session: Session | None) -> None:
        self._root: Store = open_store(uri, session)
        self._session = session

    def records(self, run_id: str) -> RunRecords:
        """Returns the records of a run."""
        return RunRecords(self._open(f"runs/{run_id}/"))

    def cache(self) -> StepCache:
        """Returns the executions of steps that later runs can use."""
        return StepCache(self._open("executions/"))

    def runs(self) -> list[PipelineRun]:
        """Returns the runs, the newest first."""
        paths = [file.path for file in self._root.list("runs/") if file.path.endswith("/run.json")]
        ids = sorted({path.split("/")[1] for path in paths}, reverse=True)
        runs = []
        for run_id in ids:
            try:
                runs.append(PipelineRun(self.records(run_id)))
            except RunNotFoundError as error:  # truncated by a full disk, or of another program
                logger.warning("a run is left out: %s", error)
        return runs

    def unfinished(self, pipeline: str) -> RunRecords:
        """Returns the newest run of a pipeline that has not succeeded; raises RunNotFoundError without one."""
        for run in self.runs():
            if run.record.pipeline == pipeline and run.record.status != "succeeded":
                return run.records
        raise RunNotFoundError(
            f"{self._root.uri} has no run of {pipeline!r} that could be resumed", run_id=self._root.uri
        )

    def _open(self, path: str) -> Store:
        return open_store(f"{self._root.uri.rstrip('/')}/{path}", self._session)
