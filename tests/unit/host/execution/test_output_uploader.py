"""What is sent of a job's outputs, over its attempts."""

from __future__ import annotations

from pathlib import Path

from pai_sdk._data.run.report.checkpoints import CheckpointConfig, FolderState, latest_checkpoint, rotate, save
from pai_sdk._data.run.store.stored_checkpoints import complete_checkpoints
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.job_folder import JobFolder
from pai_sdk._host.execution.output_uploader import OutputUploader, record_resumed


def test_checkpoints_that_a_later_attempt_rotates_go_from_the_store(tmp_path: Path) -> None:
    """`num_to_keep` holds over `max_retries`: each attempt knows what the earlier ones have sent."""
    sandbox = Sandbox(tmp_path / "job")
    files, there = JobFolder(sandbox), LocalStore(tmp_path / "there")
    saved, state = sandbox.output_dir("checkpoints"), tmp_path / "state"
    for folder in (saved, state, sandbox.state_dir):
        folder.mkdir(parents=True)
    record_resumed(files, ["checkpoints"])
    for attempt in (1, 2, 3):
        uploader = OutputUploader(files, {"checkpoints": lambda: there})
        start = latest_checkpoint(saved)
        begun = 0 if start is None or start.step is None else start.step
        for step in range(begun + 1, begun + 5):
            (state / "weights").write_text(f"of {step}")
            save(FolderState.of(state), saved / str(step), step=step)
            rotate(saved, CheckpointConfig(num_to_keep=1))
            if step % 2:
                assert uploader.upload(live_only=True) == ""
        assert uploader.upload(live_only=False) == ""
        assert [found.step for found in complete_checkpoints(there)] == [4 * attempt]
        sandbox.forget_attempt(attempt + 1)
