"""Jobs on a Slurm cluster whose nodes share the folders of jobs with the service.

One Slurm job is a whole job. On the nodes, `agent.slurm.batch` claims it and `agent.slurm.task` runs an instance;
both write into the job's folder (`GangFolder`). The executor reads that, and asks Slurm (`SlurmQueue`) only why a
job has not begun, or has ended without its instances saying so. Nothing ends because Slurm does not respond.

    root/state/     the `Journal`: description of the job, stop request; its end, written by the executor
    root/shared/    the `GangFolder`; `submitted` in it has the number of the Slurm job
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pai_sdk.agent.journal import Journal
from pai_sdk.agent.protocol import Ending, InstanceState
from pai_sdk.agent.reasons import REASON_NODE_LOST, REASON_SANDBOX_FAILED
from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.agent.slurm.gang_folder import Claim, GangFolder
from pai_sdk.base.files import locked, replace_file
from pai_sdk.errors import PaiError
from pai_sdk.execution.base import ExecutionState, Executor, ExecutorCapabilities, ExecutorSetup, LaunchSpec
from pai_sdk.execution.contract import job_facts
from pai_sdk.execution.gang_state import ended, is_secondary, job_state
from pai_sdk.execution.job_folder import JobFolder
from pai_sdk.execution.slurm.commands import SlurmAway, missing_commands
from pai_sdk.execution.slurm.options import SlurmOptions
from pai_sdk.execution.slurm.queue import QueuedJob, SlurmQueue, cancel, entries
from pai_sdk.execution.slurm.submission import LOG, resources_of, submit
from pai_sdk.execution.slurm.verdicts import lost, not_begun, verdict

__all__ = ["SlurmExecutor"]

logger = logging.getLogger(__name__)

_WITHDRAW_PATIENCE_S = 5.0
_REMOVE_TIMEOUT_S = 30.0
_STOP_SPARE_S = 20.0  # after the grace period, Slurm is asked to end what has not ended
_TRY_AGAIN_S = 5.0
_LOOK_S = 0.05
_SUBMITTED = "submitted"
_LOG_BYTES = 4096
_LOG_LINES = 5


class SlurmExecutor(Executor):
    """Runs the instances of a job as tasks of one Slurm job.

    Args:
        jobs_dir: where the folders of jobs are, on a file system that all nodes share.
        cache_dir: where environments with requirements are kept; likewise.
        options: how the cluster is used.
        grace_s: seconds between SIGTERM and SIGKILL when a job is stopped.
    """

    capabilities = ExecutorCapabilities(uses_images=False, hosts="elsewhere")

    def __init__(self, jobs_dir: Path, cache_dir: Path, options: SlurmOptions, *, grace_s: float = 10.0) -> None:
        self._jobs_dir = jobs_dir.resolve()
        self._cache_dir = cache_dir.resolve()
        self._options = options
        self._grace_s = grace_s
        self._queue = SlurmQueue()
        # A cache: when a job may be tried again that could not be submitted, or a Slurm job be cancelled again.
        self._not_before: dict[Path, float] = {}

    @classmethod
    def open(cls, setup: ExecutorSetup) -> SlurmExecutor:
        """The executor of a service."""
        options = SlurmOptions.parse(setup.options)
        missing = missing_commands()
        if missing:
            raise PaiError(
                f'the executor "slurm" needs Slurm\'s commands, and {", ".join(missing)} are not on this machine: '
                "start the service on a login node of the cluster, or install the package slurm-client and the "
                "slurm.conf of the cluster here"
            )
        return cls(setup.jobs_dir or setup.cache_dir, setup.cache_dir, options)

    def close(self) -> None:
        """Ask Slurm no more; jobs continue."""
        self._queue.close()

    # ---- start ----

    def start(self, spec: LaunchSpec) -> None:
        """Submit a job. Where Slurm does not respond, that is done as soon as it does."""
        sandbox = Sandbox(spec.sandbox.root.resolve())  # as Slurm names it
        journal = Journal(sandbox.state_dir)
        if journal.read_state() is not None:
            return
        job = {
            **job_facts(spec, grace_s=self._grace_s),
            "resources": resources_of(spec, self._options),
            "cache_dir": str(self._cache_dir),
        }
        sandbox.shared_dir.mkdir(mode=0o700, exist_ok=True)
        journal.write_job(job)
        journal.keep_room()
        instances = tuple(InstanceState(one.name, one.role) for one in spec.instances)
        journal.write_state(ExecutionState("preparing", instances=instances))
        try:
            self._submit(sandbox, journal)
        except SlurmAway as error:
            logger.warning("job %s is submitted as soon as Slurm responds: %s", spec.job_id, error)
            self._not_before[sandbox.root] = time.monotonic() + _TRY_AGAIN_S
        except PaiError:
            journal.forget_job()
            (journal.path / "state.json").unlink()
            raise

    def withdraw(self, root: Path) -> None:
        """Take back a start that was cut off; nothing was submitted where no state was written."""
        Journal(Sandbox(root.resolve()).state_dir).withdraw_job(patience_s=_WITHDRAW_PATIENCE_S)

    def _submit(self, sandbox: Sandbox, journal: Journal) -> None:
        """Submit the job, unless that was done or it must not run any more."""
        noted = sandbox.shared_dir / _SUBMITTED
        with locked(journal.lock):
            job = journal.read_job()
            if job is None or noted.exists() or GangFolder(sandbox.shared_dir).claim is not None:
                return
            self._queue.forget(sandbox.root)
            replace_file(noted, submit(sandbox.root, job, self._options))

    # ---- state ----

    def state(self, root: Path) -> ExecutionState:
        """The state by the account of the instances; Slurm's, where they cannot say any more."""
        sandbox = Sandbox(root.resolve())
        journal = Journal(sandbox.state_dir)
        before = journal.read_state()
        if before is None:
            return ExecutionState("absent")
        if before.phase == "ended":
            return before
        gang = GangFolder(sandbox.shared_dir)
        claim = gang.claim
        if claim is None:
            return self._state_before(sandbox, journal, before)
        if claim.ending is not None:
            return self._finish(journal, ended(_with(before, claim.ending), now=time.time()))
        return self._state_since(sandbox, journal, before)

    def _state_before(self, sandbox: Sandbox, journal: Journal, before: ExecutionState) -> ExecutionState:
        """The state of a job that no start has claimed."""
        root = sandbox.root
        if request := journal.stop_request:
            return self._end_before(sandbox, Ending(*request.reported))
        found = self._queue.find(root)
        if found is None:
            return before
        if not found and not (sandbox.shared_dir / _SUBMITTED).exists():
            return self._try_again(sandbox, journal, before)
        waiting = [entry for entry in found if not entry.is_over]
        if not waiting:
            return self._end_before(sandbox, not_begun(found, _log_of(journal)))
        if waiting[0].is_pending:
            why = f"Slurm job {waiting[0].number} waits: {waiting[0].reason}"
            return replace(before, reason_message=why)
        return before

    def _try_again(self, sandbox: Sandbox, journal: Journal, before: ExecutionState) -> ExecutionState:
        """Submit a job whose submission was cut off; Slurm does not have it."""
        if time.monotonic() < self._not_before.get(sandbox.root, 0.0):
            return before
        self._not_before[sandbox.root] = time.monotonic() + _TRY_AGAIN_S
        try:
            if not entries(root=sandbox.root):
                self._submit(sandbox, journal)
        except SlurmAway:
            pass
        except PaiError as error:
            return self._end_before(sandbox, Ending(REASON_SANDBOX_FAILED, f"Slurm refuses the job: {error}"))
        return before

    def _end_before(self, sandbox: Sandbox, ending: Ending) -> ExecutionState:
        """End a job that has not begun: from now on no start of it gets the claim."""
        gang = GangFolder(sandbox.shared_dir)
        if gang.take(Claim(ending=ending)):
            self._queue.cancel(sandbox.root)
        return self.state(sandbox.root)

    def _state_since(self, sandbox: Sandbox, journal: Journal, before: ExecutionState) -> ExecutionState:
        """The state of a job that a start has claimed."""
        gang, names = GangFolder(sandbox.shared_dir), [one.name for one in before.instances]
        is_told = gang.is_told(names)
        parts = [gang.state(name) for name in names]
        ending, request = gang.ending, journal.stop_request
        if is_told and is_secondary(ending):  # Slurm ends the job; an instance may have missed another one before
            ending = None
        if ending is None and request is not None:
            ending = Ending(*request.reported)
        has_ended = all(part is not None and part.phase == "ended" for part in parts)
        has_succeeded = has_ended and not is_told and all(part is not None and part.succeeded for part in parts)
        if not has_ended or (ending is None and not has_succeeded):
            # Slurm is at it, an instance is about to write why it has failed, or there is nothing to be said yet.
            found = self._queue.find(sandbox.root)
            is_over = found is not None and all(entry.is_over for entry in found)
            has_ended = is_over and (has_ended or not any(map(gang.is_alive, ["", *names])))
            # A job that Slurm has forgotten may well run; one that is over for Slurm must not.
            if found is not None and ending is None and (has_ended or (found and is_over)):
                ending = _ending_by_slurm(found, parts)
                if ending is not None:
                    gang.write_ending(ending)
            elif found is not None and has_ended:
                ending = _loss_behind(gang, found, before, parts) or ending
        begun = [part.started_at for part in parts if part is not None and part.started_at]
        before = replace(before, started_at=min(begun, default=None))
        if not has_ended:
            self._enforce_stop(sandbox, journal)
            state = job_state(before, parts, ending or _said_by(parts), now=time.time())
            return _unended(state, before) if state.phase == "ended" else state
        if is_told and ending is not None:
            parts = [_interrupted(part) for part in parts]
        over = [part.ended_at for part in parts if part is not None and part.ended_at]
        state = job_state(before, parts, ending, now=max(over, default=time.time()))
        return self._finish(journal, state if state.phase == "ended" else ended(state, now=time.time()))

    def _finish(self, journal: Journal, state: ExecutionState) -> ExecutionState:
        """Write the end; the first one stays."""
        with locked(journal.lock):
            found = journal.read_state()
            if found is None or found.phase != "ended":
                journal.write_state(state)
                found = state
        self._queue.forget(journal.path.parent)
        self._not_before.pop(journal.path.parent, None)
        return found

    # ---- stop ----

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Ask all instances to end; returns at once. The first reason given stays."""
        journal = Journal(Sandbox(root).state_dir)
        state = journal.read_state()
        if state is not None and state.phase != "ended":
            journal.request_stop(reason_code, reason_message)

    def _enforce_stop(self, sandbox: Sandbox, journal: Journal) -> None:
        """Have Slurm end a job whose instances have not ended when they were asked to."""
        try:
            asked_at = (journal.path / "stop").stat().st_mtime
        except FileNotFoundError:
            return
        is_due = time.monotonic() >= self._not_before.get(sandbox.root, 0.0)
        if is_due and time.time() - asked_at > self._grace_s + _STOP_SPARE_S:
            self._not_before[sandbox.root] = time.monotonic() + _STOP_SPARE_S
            self._queue.cancel(sandbox.root)

    # ---- files, and their removal ----

    def has_let_go(self, root: Path) -> bool:
        """Return whether the job is over for Slurm, too."""
        found = self._queue.find(root.resolve())
        return found is not None and all(entry.is_over for entry in found)

    def files(self, root: Path) -> JobFolder:
        """The files of a job; its instances use its folder."""
        return JobFolder(Sandbox(root))

    def remove(self, root: Path) -> None:
        """Kill what runs of a job, and remove its folder. What waits in Slurm finds nothing to do.

        Raises:
            PaiError: processes of the job do not end.
        """
        sandbox = Sandbox(root.resolve())
        self.withdraw(root)
        journal, gang = Journal(sandbox.state_dir), GangFolder(sandbox.shared_dir)
        state = journal.read_state()
        if state is not None and state.phase != "ended":
            gang.take(Claim(ending=Ending(REASON_SANDBOX_FAILED, "The job was removed.")))
            gang.kill()
            _cancel_now(sandbox)
            deadline = time.monotonic() + _REMOVE_TIMEOUT_S
            while _is_at_work(gang, [one.name for one in state.instances]):
                if time.monotonic() > deadline:
                    raise PaiError(f"processes of the job in {root} do not end; see {journal.path / LOG}")
                time.sleep(_LOOK_S)
        self._queue.forget(sandbox.root)
        sandbox.remove()

    def sweep(self) -> Sequence[str]:
        """Cancel the Slurm jobs of jobs whose folder has gone; gives the ids of the jobs."""
        gone = set()
        if self._jobs_dir.is_dir():  # otherwise the file system is away, and not the folders
            for entry in entries():
                if not entry.is_over and entry.root.parent == self._jobs_dir and not entry.root.exists():
                    cancel(entry, kills=True)
                    gone.add(entry.job_id)
        return sorted(gone)


def _cancel_now(sandbox: Sandbox) -> None:
    try:
        for entry in entries(root=sandbox.root):
            if not entry.is_over:
                cancel(entry, kills=True)
    except PaiError as error:
        logger.warning("the Slurm job of %s could not be cancelled: %s", sandbox.root.name, error)


def _is_at_work(gang: GangFolder, names: Sequence[str]) -> bool:
    """Return whether an instance has not ended, and gives signs of life."""
    claim = gang.claim
    if claim is None or claim.ending is not None:
        return False
    states = {name: gang.state(name) for name in names}
    running = [name for name, state in states.items() if state is None or state.phase != "ended"]
    return any(map(gang.is_alive, running))


def _ending_by_slurm(found: Sequence[QueuedJob], parts: Sequence[ExecutionState | None]) -> Ending | None:
    """Why a job has ended that Slurm has ended, or that did not say why; None where it has succeeded after all."""
    if not found:
        return lost(found)
    has_succeeded = all(part is not None and part.succeeded for part in parts)
    return verdict(found) or _said_by(parts) or (None if has_succeeded else lost(found))


def _loss_behind(
    gang: GangFolder, found: Sequence[QueuedJob], before: ExecutionState, parts: Sequence[ExecutionState | None]
) -> Ending | None:
    """The loss of a node that explains the failure of another instance; None where there is none."""
    loss = verdict(found)
    if loss is None or loss.code != REASON_NODE_LOST:
        return None
    for one, part in zip(before.instances, parts, strict=True):
        is_lost = part is None or part.phase != "ended"
        if is_lost and is_secondary(gang.ending, one.name) and not gang.has_outlived_ending(one.name):
            return replace(loss, failed_instance=one.name)
    return None


def _said_by(parts: Sequence[ExecutionState | None]) -> Ending | None:
    """Why an instance ends, by its own account."""
    said = [part for part in parts if part is not None and part.reason_code]
    return Ending(said[0].reason_code, said[0].reason_message, said[0].failed_instance) if said else None


def _unended(state: ExecutionState, before: ExecutionState) -> ExecutionState:
    """The state of a job whose instances have ended, while it is not known why."""
    return replace(before, phase="running", instances=state.instances)


def _interrupted(part: ExecutionState | None) -> ExecutionState | None:
    """An instance that Slurm has ended did not succeed, whatever exit code it gave."""
    if part is None:
        return None
    return replace(part, instances=tuple(replace(one, status="Terminated") for one in part.instances))


def _with(state: ExecutionState, ending: Ending) -> ExecutionState:
    return replace(
        state,
        reason_code=ending.code,
        reason_message=ending.message,
        failed_instance=ending.failed_instance,
    )


def _log_of(journal: Journal) -> str:
    """The last lines of what Slurm's commands printed on the node."""
    try:
        text = (journal.path / LOG).read_bytes()[-_LOG_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
    return " / ".join(line.strip() for line in text.splitlines()[-_LOG_LINES:] if line.strip())
