"""Finds the newest complete checkpoint to resume from, and copies it to the job's output before the job starts.

The copy is written to the URI of the job's own `checkpoints`. Every backend provides the content of that URI to
the job: a service and local Docker copy it into the job's folder, Alibaba Cloud mounts it. So `get_checkpoint()`
returns it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from pai_sdk._data.run.store.stored_checkpoints import StoredCheckpoint, copy_checkpoint, latest_of_each_rank
from pai_sdk._data.storage.store import open_store
from pai_sdk.errors import CheckpointError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoints that a job resumes from, as listed when the job was planned; nothing has been copied."""

    # One for each rank that has any, rank 0 first; empty when the job starts from scratch.
    checkpoints: tuple[StoredCheckpoint, ...]
    source: str  # the URI that was listed
    target: str  # the URI of the job's own checkpoints

    @property
    def step(self) -> int | None:
        """The step that the job resumes from; None when it starts from scratch."""
        return self.checkpoints[0].step if self.checkpoints else None

    @property
    def is_at_target(self) -> bool:
        """True if nothing needs to be copied."""
        return all(
            checkpoint.uri.startswith(self.target) and not checkpoint.is_replacement
            for checkpoint in self.checkpoints
        )

    def __str__(self) -> str:
        if not self.checkpoints:
            return f"no complete checkpoint in {self.source}: the job starts from scratch"
        first = self.checkpoints[0]
        size_bytes = sum(checkpoint.size_bytes for checkpoint in self.checkpoints)
        location = "in place" if self.is_at_target else f"copied to {self.target} before the job starts"
        return f"step {first.step} from {first.uri} ({size_bytes:,} bytes, {location})"

    def copy_to_target(self, session: Any) -> None:
        """Copies the checkpoints into the job's output; CheckpointError if one has changed. Idempotent."""
        if self.is_at_target:
            return
        target = open_store(self.target, session)
        for checkpoint in self.checkpoints:
            of_rank = f"rank-{checkpoint.rank}/" if checkpoint.rank else ""
            source = open_store(checkpoint.store.uri, session)
            copy_checkpoint(replace(checkpoint, store=source), target, f"{of_rank}{checkpoint.step}/")


def find_resume_point(source: str, target: str, session: Any, *, required: bool) -> ResumePoint:
    """Returns the newest complete checkpoint of source or target; the target's when it is not older."""
    target_store = open_store(target, session)
    # A restarted job may have saved newer checkpoints in the target.
    existing = tuple(latest_of_each_rank(target_store))
    source_store = open_store(source, session)
    if source_store.uri == target_store.uri:
        checkpoints = existing
    else:
        checkpoints = tuple(latest_of_each_rank(source_store))
        if existing and checkpoints and existing[0].step >= checkpoints[0].step:
            if existing[0].marker != checkpoints[0].marker:
                logger.info(
                    "%s already has step %s, which is not older than step %s of %s: the job resumes from it",
                    target_store.uri, existing[0].step, checkpoints[0].step, source_store.uri,
                )  # fmt: skip
            checkpoints = existing
    point = ResumePoint(checkpoints, source_store.uri, target_store.uri)
    if not checkpoints and required:
        raise CheckpointError(f"there is no complete checkpoint in {source_store.uri}")
    if not checkpoints:
        logger.info("resume: %s", point)
    return point
