"""Jobs on a Slurm cluster whose nodes share the folders of jobs with the service.

One Slurm job runs one complete job. On the nodes, `agent.slurm.batch` claims it and `agent.slurm.task` runs an
instance; both write into the job's folder (`GangFolder`). The executor reads that folder, and asks Slurm
(`SlurmQueue`) only why a job has not started, or has ended without a report of its instances. No job ends because
Slurm does not respond.

    root/state/     the `Journal`: description of the job, stop request; its end, written by the executor
    root/shared/    the `GangFolder`; `submitted` in it has the number of the Slurm job
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pai_sdk._core.files import locked, replace_file
from pai_sdk._core.reasons import REASON_NODE_LOST, REASON_SANDBOX_FAILED
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import Ending
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.slurm.gang_folder import Claim, GangFolder
from pai_sdk._host.agent.tunnel.connecting import NO_TUNNELS
from pai_sdk._host.execution.base import ExecutionState, Executor, ExecutorCapabilities, ExecutorSetup, LaunchSpec
from pai_sdk._host.execution.contract import job_description
from pai_sdk._host.execution.gang_state import (
    ended,
    has_succeeded,
    initial_states,
    is_secondary,
    job_state,
    merged,
)
from pai_sdk._host.execution.job_folder import JobFolder
from pai_sdk._host.execution.node_connections import NodeConnections
from pai_sdk._host.execution.slurm.commands import SlurmAway, missing_commands
from pai_sdk._host.execution.slurm.options import SlurmOptions
from pai_sdk._host.execution.slurm.queue import QueuedJob, SlurmQueue, cancel, list_entries
from pai_sdk._host.execution.slurm.submission import LOG, instance_resources, submit
from pai_sdk._host.execution.slurm.verdicts import lost, never_started, verdict
from pai_sdk.errors import PaiError, TunnelRefusedError

logger = logging.getLogger(__name__)

_WITHDRAW_PATIENCE_S = 5.0
_REMOVE_TIMEOUT_S = 30.0
_STOP_MARGIN_S = 20.0  # after the grace period; then Slurm is asked to cancel the job
_RETRY_INTERVAL_S = 5.0
_POLL_INTERVAL_S = 0.05
_SUBMITTED = "submitted"
_LOG_BYTES = 4096
_LOG_LINES = 5


class SlurmExecutor(Executor):
    """Runs the instances of a job as tasks of one Slurm job."""

    capabilities = ExecutorCapabilities(
        uses_images=False, hosts="elsewhere", roles=True, mounts=True, tunnels=True
    )

    def __init__(self, jobs_dir: Path, cache_dir: Path, options: SlurmOptions, *, grace_s: float = 10.0) -> None:
        # Both folders must be on file systems that all nodes share.
        self._jobs_dir = jobs_dir.resolve()
        self._cache_dir = cache_dir.resolve()
        self._options = options
        # Between SIGTERM and SIGKILL.
        self._grace_s = grace_s
        self._queue = SlurmQueue()
        # A cache: the earliest time of the next attempt to submit a job, or to cancel its Slurm job.
        self._not_before: dict[Path, float] = {}
        self._nodes = NodeConnections()

    @classmethod
    def open(cls, setup: ExecutorSetup) -> SlurmExecutor:
        """Opens the executor for a service."""
        options = SlurmOptions.parse(setup.options)
        missing = missing_commands()
        if missing:
            raise PaiError(
                f'the executor "slurm" needs Slurm\'s commands, and {", ".join(missing)} are not on this machine: '
                "start the service on a login node of the cluster, or install the package slurm-client and the "
                "slurm.conf of the cluster here"
            )
        executor = cls(setup.jobs_dir or setup.cache_dir, setup.cache_dir, options)
        executor._nodes = setup.node_connections
        return executor

    def close(self) -> None:
        """Stops polling Slurm; jobs continue."""
        self._queue.close()

    # ---- start ----

    def start(self, spec: LaunchSpec) -> None:
        """Submits a job. If Slurm does not respond, a later `state` submits it."""
        # Slurm reports the resolved working directory.
        sandbox = Sandbox(spec.sandbox.root.resolve())
        journal = Journal(sandbox.state_dir)
        if journal.read_state() is not None:
            return
        job = {
            **job_description(spec, grace_s=self._grace_s),
            "resources": instance_resources(spec, self._options),
            "cache_dir": str(self._cache_dir),
        }
        sandbox.shared_dir.mkdir(mode=0o700, exist_ok=True)
        journal.write_job(job)
        journal.reserve_space()
        # Written before the submission: a job with a state and without a Slurm job is submitted again.
        journal.write_state(ExecutionState("preparing", instances=initial_states(spec.instances)))
        try:
            self._submit(sandbox, journal)
        except SlurmAway as error:
            logger.warning("job %s is submitted as soon as Slurm responds: %s", spec.job_id, error)
            self._not_before[sandbox.root] = time.monotonic() + _RETRY_INTERVAL_S
        except PaiError:
            # Slurm has refused the job: nothing of the start may remain.
            journal.forget_job()
            (journal.path / "state.json").unlink()
            raise

    def withdraw(self, root: Path) -> None:
        """Cancels an interrupted start; nothing was submitted unless a state was written."""
        Journal(Sandbox(root.resolve()).state_dir).withdraw_job(patience_s=_WITHDRAW_PATIENCE_S)

    def _submit(self, sandbox: Sandbox, journal: Journal) -> None:
        """Submits the job, unless it was submitted already or must not run any more."""
        submitted_file = sandbox.shared_dir / _SUBMITTED
        with locked(journal.lock):
            # Read under the lock: another process may have submitted or withdrawn the job meanwhile.
            job = journal.read_job()
            if job is None or submitted_file.exists() or GangFolder(sandbox.shared_dir).claim is not None:
                return
            self._queue.forget(sandbox.root)
            replace_file(submitted_file, submit(sandbox.root, job, self._options))

    # ---- state ----

    def state(self, root: Path) -> ExecutionState:
        """Returns the state that the instances report; Slurm's, if they cannot report any more."""
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
            return self._unclaimed_state(sandbox, journal, before)
        if claim.ending is not None:
            return self._finish(journal, ended(_with_ending(before, claim.ending), now=time.time()))
        return self._claimed_state(sandbox, journal, before)

    def _unclaimed_state(self, sandbox: Sandbox, journal: Journal, before: ExecutionState) -> ExecutionState:
        """Returns the state of a job that no started batch script has claimed."""
        root = sandbox.root
        if request := journal.stop_request:
            return self._end_unclaimed(sandbox, Ending(*request.reported))
        queued = self._queue.find(root)
        if queued is None:
            return before
        if not queued and not (sandbox.shared_dir / _SUBMITTED).exists():
            return self._retry_submit(sandbox, journal, before)
        waiting = [entry for entry in queued if not entry.is_finished]
        if not waiting:
            return self._end_unclaimed(sandbox, never_started(queued, _log_tail(journal)))
        if waiting[0].is_pending:
            message = f"Slurm job {waiting[0].number} waits: {waiting[0].reason}"
            return replace(before, reason_message=message)
        return before

    def _retry_submit(self, sandbox: Sandbox, journal: Journal, before: ExecutionState) -> ExecutionState:
        """Submits a job whose submission was interrupted, if Slurm does not have it."""
        if time.monotonic() < self._not_before.get(sandbox.root, 0.0):
            return before
        self._not_before[sandbox.root] = time.monotonic() + _RETRY_INTERVAL_S
        try:
            if not list_entries(root=sandbox.root):
                self._submit(sandbox, journal)
        except SlurmAway:
            pass
        except PaiError as error:
            return self._end_unclaimed(sandbox, Ending(REASON_SANDBOX_FAILED, f"Slurm refuses the job: {error}"))
        return before

    def _end_unclaimed(self, sandbox: Sandbox, ending: Ending) -> ExecutionState:
        """Ends a job that has not started: after this claim, no batch script can start it."""
        gang = GangFolder(sandbox.shared_dir)
        if gang.try_claim(Claim(ending=ending)):
            self._queue.cancel(sandbox.root)
        return self.state(sandbox.root)

    def _claimed_state(self, sandbox: Sandbox, journal: Journal, before: ExecutionState) -> ExecutionState:
        """Returns the state of a job that a batch script has claimed."""
        gang, names = GangFolder(sandbox.shared_dir), [instance.name for instance in before.instances]
        is_interrupted = gang.has_sigterm(names)
        parts = [gang.state(name) for name in names]
        ending, request = gang.ending, journal.stop_request
        # Slurm is ending the job: the failure may be a consequence of that, so it is not the reason.
        if is_interrupted and is_secondary(ending):
            ending = None
        if ending is None and request is not None:
            ending = Ending(*request.reported)
        has_ended = all(part is not None and part.phase == "ended" for part in parts)
        all_succeeded = has_succeeded(merged(before.instances, parts))
        if not has_ended or (ending is None and (is_interrupted or not all_succeeded)):
            # Slurm is ending the job, an instance is about to write its failure, or the job runs.
            queued = self._queue.find(sandbox.root)
            is_finished = queued is not None and all(entry.is_finished for entry in queued)
            has_ended = is_finished and (has_ended or not any(map(gang.is_alive, ["", *names])))
            # A job that Slurm has forgotten may still run; one that Slurm has ended must not.
            if queued is not None and ending is None and (has_ended or (queued and is_finished)):
                ending = _slurm_ending(queued, before, parts)
                if ending is not None:
                    # The first ending in the folder wins, so instances that are still alive report the same
                    # one.
                    gang.write_ending(ending)
            elif queued is not None and has_ended:
                ending = _causing_loss(gang, queued, before, parts) or ending
        start_times = [part.started_at for part in parts if part is not None and part.started_at]
        before = replace(before, started_at=min(start_times, default=None))
        if not has_ended:
            self._enforce_stop(sandbox, journal)
            state = job_state(before, parts, ending or _reported_ending(before, parts), now=time.time())
            return _still_running(state, before) if state.phase == "ended" else state
        if is_interrupted and ending is not None:
            parts = [_interrupted(part) for part in parts]
        end_times = [part.ended_at for part in parts if part is not None and part.ended_at]
        state = job_state(before, parts, ending, now=max(end_times, default=time.time()))
        return self._finish(journal, state if state.phase == "ended" else ended(state, now=time.time()))

    def _finish(self, journal: Journal, state: ExecutionState) -> ExecutionState:
        """Writes the final state, unless another process has written one."""
        with locked(journal.lock):
            recorded = journal.read_state()
            if recorded is None or recorded.phase != "ended":
                journal.write_state(state)
                recorded = state
        self._queue.forget(journal.path.parent)
        self._not_before.pop(journal.path.parent, None)
        return recorded

    # ---- stop ----

    def stop(self, root: Path, *, reason_code: str, reason_message: str) -> None:
        """Asks all instances to exit; returns at once. The reason of the first call is kept."""
        journal = Journal(Sandbox(root).state_dir)
        state = journal.read_state()
        if state is not None and state.phase != "ended":
            journal.request_stop(reason_code, reason_message)

    def _enforce_stop(self, sandbox: Sandbox, journal: Journal) -> None:
        """Cancels the Slurm job if its instances have not exited after a stop request."""
        try:
            # The time of the file, because another process may have made the request.
            requested_at = (journal.path / "stop").stat().st_mtime
        except FileNotFoundError:
            return
        is_due = time.monotonic() >= self._not_before.get(sandbox.root, 0.0)
        if is_due and time.time() - requested_at > self._grace_s + _STOP_MARGIN_S:
            self._not_before[sandbox.root] = time.monotonic() + _STOP_MARGIN_S
            self._queue.cancel(sandbox.root)

    # ---- tunnels ----

    def nodes(self, root: Path) -> Mapping[str, str]:
        """Returns the names of the hosts of the instances that have started."""
        sandbox = Sandbox(root.resolve())
        state, gang = Journal(sandbox.state_dir).read_state(), GangFolder(sandbox.shared_dir)
        if state is None or not gang.path.is_dir():
            return {}
        hosts = {rank: each.host for each in gang.ports() for rank in each.ports}
        return {part.name: hosts[rank] for rank, part in enumerate(state.instances) if rank in hosts}

    def connect_tunnel(self, root: Path, instance: str) -> socket.socket:
        """Returns a connection to an instance, whose task opens it from its node.

        Raises:
            TunnelRefusedError: the instance cannot be entered; `code` says why.
        """
        sandbox = Sandbox(root.resolve())
        state, gang = Journal(sandbox.state_dir).read_state(), GangFolder(sandbox.shared_dir)
        names = [part.name for part in state.instances] if state is not None else []
        if instance not in names:
            raise TunnelRefusedError("InstanceNotRunning", "the instance has not started")
        rank = names.index(instance)
        # The shared folder does not exist before the submission.
        hosts = gang.ports() if gang.path.is_dir() else []
        address = next((host.address for host in hosts if rank in host.ports), None)
        if address is None:
            raise TunnelRefusedError("InstanceNotRunning", "the instance has not started on a node yet")
        with self._nodes.expect(address) as expected:
            name = gang.request_tunnel(rank, expected.request)
            try:
                return expected.wait(lambda: gang.tunnel_refusal(name))
            except TimeoutError as error:
                if not gang.has_tunnels(instance):
                    raise TunnelRefusedError("NotSupported", NO_TUNNELS) from error
                raise
            finally:
                gang.withdraw_tunnel_request(name)

    # ---- files, and their removal ----

    def has_let_go(self, root: Path) -> bool:
        """Returns whether Slurm, too, reports the job as finished."""
        queued = self._queue.find(root.resolve())
        return queued is not None and all(entry.is_finished for entry in queued)

    def files(self, root: Path) -> JobFolder:
        """Returns the files of a job; its instances use its folder."""
        return JobFolder(Sandbox(root))

    def remove(self, root: Path) -> None:
        """Kills the processes of a job and removes its folder; a pending Slurm job then starts nothing."""
        sandbox = Sandbox(root.resolve())
        self.withdraw(root)
        journal, gang = Journal(sandbox.state_dir), GangFolder(sandbox.shared_dir)
        state = journal.read_state()
        if state is not None and state.phase != "ended":
            gang.try_claim(Claim(ending=Ending(REASON_SANDBOX_FAILED, "The job was removed.")))
            gang.kill()
            _cancel_now(sandbox)
            deadline = time.monotonic() + _REMOVE_TIMEOUT_S
            while _is_alive(gang, [instance.name for instance in state.instances]):
                if time.monotonic() > deadline:
                    raise PaiError(f"processes of the job in {root} do not end; see {journal.path / LOG}")
                time.sleep(_POLL_INTERVAL_S)
        self._queue.forget(sandbox.root)
        sandbox.remove()

    def sweep(self) -> Sequence[str]:
        """Cancels the Slurm jobs of jobs whose folder is gone; returns the job ids."""
        orphaned = set()
        # Otherwise the file system is not mounted, which says nothing about the jobs.
        if self._jobs_dir.is_dir():
            for entry in list_entries():
                if not entry.is_finished and entry.root.parent == self._jobs_dir and not entry.root.exists():
                    cancel(entry, should_kill=True)
                    orphaned.add(entry.job_id)
        return sorted(orphaned)


def _cancel_now(sandbox: Sandbox) -> None:
    try:
        for entry in list_entries(root=sandbox.root):
            if not entry.is_finished:
                cancel(entry, should_kill=True)
    except PaiError as error:
        logger.warning("the Slurm job of %s could not be cancelled: %s", sandbox.root.name, error)


def _is_alive(gang: GangFolder, names: Sequence[str]) -> bool:
    """Returns whether an unfinished instance still shows signs of life."""
    claim = gang.claim
    if claim is None or claim.ending is not None:
        return False
    states = {name: gang.state(name) for name in names}
    running = [name for name, state in states.items() if state is None or state.phase != "ended"]
    return any(map(gang.is_alive, running))


def _slurm_ending(
    queued: Sequence[QueuedJob], before: ExecutionState, parts: Sequence[ExecutionState | None]
) -> Ending | None:
    """Returns why Slurm has ended a job, or why one ended without a report; None if it has succeeded."""
    if not queued:
        return lost(queued)
    outcome = verdict(queued) or _reported_ending(before, parts)
    return outcome or (None if has_succeeded(merged(before.instances, parts)) else lost(queued))


def _causing_loss(
    gang: GangFolder, queued: Sequence[QueuedJob], before: ExecutionState, parts: Sequence[ExecutionState | None]
) -> Ending | None:
    """Returns the loss of a node that explains another instance's failure; None if there is none."""
    loss = verdict(queued)
    if loss is None or loss.code != REASON_NODE_LOST:
        return None
    for instance, part in zip(before.instances, parts, strict=True):
        is_lost = part is None or part.phase != "ended"
        if is_lost and is_secondary(gang.ending, instance.name) and not gang.has_outlived_ending(instance.name):
            return replace(loss, failed_instance=instance.name)
    return None


def _reported_ending(before: ExecutionState, parts: Sequence[ExecutionState | None]) -> Ending | None:
    """Returns the first reason to end the job that an instance has reported."""
    reported = (
        part.failure(can_fail_job=instance.can_fail_job)
        for instance, part in zip(before.instances, parts, strict=True)
        if part is not None
    )
    return next(filter(None, reported), None)


def _still_running(state: ExecutionState, before: ExecutionState) -> ExecutionState:
    """Returns the state of a job whose instances have ended, until the reason is known."""
    return replace(before, phase="running", instances=state.instances)


def _interrupted(part: ExecutionState | None) -> ExecutionState | None:
    """Marks an instance that Slurm has ended: it did not succeed, whatever its exit code is."""
    if part is None:
        return None
    return replace(part, instances=tuple(replace(instance, status="Terminated") for instance in part.instances))


def _with_ending(state: ExecutionState, ending: Ending) -> ExecutionState:
    return replace(
        state,
        reason_code=ending.code,
        reason_message=ending.message,
        failed_instance=ending.failed_instance,
    )


def _log_tail(journal: Journal) -> str:
    """Returns the last lines that Slurm's commands printed on the node."""
    try:
        text = (journal.path / LOG).read_bytes()[-_LOG_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
    return " / ".join(line.strip() for line in text.splitlines()[-_LOG_LINES:] if line.strip())
