"""A handle on one job: any process with its id can wait for it, read its log, stop it, download its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, overload

from pai_sdk._client.backend.base import Backend, JobUpdates
from pai_sdk._client.backend.queueing import ReportsQueue, WaitingReason
from pai_sdk._client.backend.specs import backend_for_job
from pai_sdk._client.display.base import Display, Silent, duration_text, elapsed_s
from pai_sdk._client.display.choice import prints_lines
from pai_sdk._client.job.failure.explain import job_failure, stopped_error
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.follow.stream import LogStream
from pai_sdk._client.job.notebook_card import NotebookCard
from pai_sdk._client.job.notifications import notify_all
from pai_sdk._client.job.outputs import download_output, output_uri, trace_of
from pai_sdk._client.job.result_lists import MetricList
from pai_sdk._client.job.waiting import Waiting, wait_async
from pai_sdk._core.default_session import session_or_default
from pai_sdk._core.names.aliases import Aliased
from pai_sdk._core.names.hints import name_hint, wrong_value
from pai_sdk._core.names.keywords import checks_keywords
from pai_sdk._core.paths import parse_path
from pai_sdk._core.short_traceback import short_tracebacks
from pai_sdk._data.notify.targets import Notification
from pai_sdk._wire.body import received
from pai_sdk._wire.pai.arguments import check_choice, check_labels, seconds_or_none
from pai_sdk._wire.pai.record import ErrorInfo, InstanceUsage, JobRecord
from pai_sdk._wire.pai.status import WAITING, JobStatus
from pai_sdk._wire.requests import RecordedSpec
from pai_sdk.errors import (
    InvalidInputError,
    JobFailed,
    JobStopped,
    PaiError,
    Problem,
)

if TYPE_CHECKING:
    from pai_sdk._client.backend.base import UpdatesJobs
    from pai_sdk._client.job.board import Board
    from pai_sdk._client.job.entering import EnteredJob, ExecResult
    from pai_sdk._client.job.stacks import JobStacks
    from pai_sdk._client.tunnel.forwarding import PortForward, PortSpec
    from pai_sdk._data.storage.store import Store
    from pai_sdk._data.trace.trace_data import TraceData


class JobSource(Protocol):
    """Gets and lists jobs; a `Session` is one."""

    def get_job(self, job_id: str) -> TrainingJob:
        """Returns the job with an id."""
        ...

    def list_jobs(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        local: bool = False,
        skip: int = 0,
        api: str | None = None,
    ) -> Iterator[TrainingJob]:
        """Yields the jobs that match, without the first `skip`."""
        ...


@short_tracebacks
class TrainingJob(Aliased):
    """One job on one backend. Its only state is the last snapshot.

    `run()`, `fit()`, `get` and `list` return it. Methods that make a request may also raise an `ApiError` (the
    service refuses), a `ConnectionFailedError` (no response, after the retries of the session's policy) or, for
    `instance_type="local"`, an `EngineNotFoundError`. The fields of a job are those of GetTrainingJob of paistudio
    2022-01-12.

    Attributes:
        id: the job's id.
        backend: the backend that runs the job.
        last_record: the last snapshot of the job; None before the first request.
        notifications: the targets to which `wait()` reports the end, once: such as `Webhook`.

    Example:
        >>> def finish(job: TrainingJob) -> Path:
        ...     job.wait(timeout=3600)
        ...     return job.download("model", "./model")
    """

    def __init__(self, job_id: str, backend: Backend, *, record: JobRecord | None = None) -> None:
        self.id = job_id
        self.backend = backend
        self.last_record = record
        self.notifications: Sequence[Notification] = ()
        self._card = NotebookCard()

    @classmethod
    @checks_keywords
    def get(cls, job_id: str, session: JobSource | None = None) -> TrainingJob:
        """Attach to a job by its id, or by a name that only one job has.

        Args:
            job_id: the id, as `run()` and `pai-sdk ps` print it; or the name.
            session: the session of the job; the default session otherwise.

        Raises:
            InvalidInputError: the value cannot be an id, or it is the name of several jobs.
            NotFoundError: there is no such job.
        """
        return _source(session, local=backend_for_job(job_id).is_local).get_job(job_id)

    @overload
    @classmethod
    def list(
        cls,
        status: str | None = None,
        session: JobSource | None = None,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        local: bool = False,
        api: str | None = None,
    ) -> Iterator[TrainingJob]: ...

    @overload
    @classmethod
    def list(
        cls,
        status: str | None = None,
        session: JobSource | None = None,
        page_size: int = 50,
        page_number: int = 1,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        local: bool = False,
        api: str | None = None,
    ) -> Sequence[TrainingJob]: ...

    @classmethod
    def list(
        cls,
        status: str | None = None,
        session: JobSource | None = None,
        page_size: int | None = None,
        page_number: int | None = None,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        local: bool = False,
        api: str | None = None,
    ) -> Iterator[TrainingJob] | Sequence[TrainingJob]:
        """All jobs that match, the newest first; pages are fetched when they are needed.

        Args:
            status: only jobs in this status.
            session: the session of the jobs; the default session otherwise.
            page_size: return a list of this many jobs instead of an iterator over all; 50 if
                only `page_number` is given.
            page_number: the number of the page, from 1; 1 if only `page_size` is given.
            name: only jobs with this text in their name.
            labels: only jobs with all of these labels.
            local: list the jobs in Docker on this machine instead of those of the service.
            api: `dlc` for the jobs of DLC, `trainingjob` for training jobs; that of the settings otherwise.

        Raises:
            InvalidInputError: the status does not exist, the name or the labels are no strings, or a page is no
                positive number.
        """
        start, end = (0, None) if page_size is page_number is None else _page_range(page_size, page_number)
        source = _source(session, local=local)
        jobs = source.list_jobs(status=status, name=name, labels=labels, local=local, skip=start, api=api)
        return jobs if end is None else [*islice(jobs, end - start)]

    # ---- its current state

    @property
    def reason_code(self) -> str | None:
        """The service's code of the reason for the status."""
        return self.record.reason_code

    @property
    def reason_message(self) -> str | None:
        """The service's text of the reason for the status."""
        return self.record.reason_message

    def refresh(self) -> JobRecord:
        """Request a new snapshot.

        Raises:
            NotFoundError: the job has been deleted.
        """
        self.last_record = self.backend.get(self.id)
        return self.last_record

    @property
    def record(self) -> JobRecord:
        """The last snapshot of the job; it is requested at the first use. `refresh()` gives a new one."""
        return self.last_record if self.last_record is not None else self.refresh()

    @property
    def status(self) -> JobStatus:
        """The current status. A finished job is not polled again."""
        if self.last_record is not None and self.last_record.status.is_terminal:
            return self.last_record.status
        return self.refresh().status

    @property
    def name(self) -> str:
        """The job's name."""
        return self.record.training_job_name or self.id

    @property
    def console_url(self) -> str | None:
        """The URL of the job's page, if the service has one: in the browser, `pai-sdk ui` signs you in."""
        return self.record.training_job_url

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the last snapshot."""
        return {label.key: label.value or "" for label in self.record.labels if label.key}

    # ---- waiting and reading

    @checks_keywords
    def wait(
        self,
        timeout: float | None = None,
        *,
        interval: float | None = None,
        show_logs: bool = True,
        display: Display | None = None,
        policy: FollowPolicy | None = None,
        on_interrupt: Literal["detach", "stop"] = "detach",
    ) -> TrainingJob:
        """Wait until the job has finished, and print its log as it grows.

        Ctrl-C stops the waiting, and the job only with `on_interrupt`. An unreadable log causes a notice, and does
        not fail the wait. While the service is unreachable, the wait continues for the patience of the policy.

        Args:
            timeout: maximum time to wait, in seconds; unlimited by default. The job is polled once in any case.
            interval: the longest pause between two polls, in seconds; the policy's otherwise.
            show_logs: read the log and print it; False prints at most the end.
            display: the display; by default a card in a notebook, lines elsewhere, nothing without logs.
            policy: the polling intervals.
            on_interrupt: the effect of Ctrl-C on the job: it keeps running, or it is stopped and waited for.

        Returns:
            This job, so that `job.wait().download("model")` reads well.

        Raises:
            InvalidInputError: `timeout` or `interval` is no number, or `on_interrupt` neither `detach` nor `stop`.
            JobFailed: the job failed; the error has the reason.
            JobStopped: the job was stopped.
            WaitTimeoutError: the timeout has passed; the job is not stopped.
            KeyboardInterrupt: Ctrl-C; the message has the commands to follow the job, or reports its stop.
        """
        check_choice("on_interrupt", on_interrupt, ("detach", "stop"))
        timeout_s = seconds_or_none(timeout)
        if show_logs and display is None:
            display = self._card.new_display(self)
        active_display = display or Silent()
        policy = policy or FollowPolicy()
        if (pause_s := seconds_or_none(interval, "interval")) is not None:
            policy = replace(policy, pause_s=pause_s)
        waiting = Waiting(self, active_display, policy)
        active_display.ended(waiting.wait(timeout_s, show_logs=show_logs, stops=on_interrupt == "stop"))
        try:
            if waiting.has_read_log:  # the wait included that for late lines
                waited_s = policy.failed_quiet_s if waiting.gave_up else None
                self._raise_for_status(waited_s=waited_s, is_log_printed=prints_lines(active_display))
            else:
                self._raise_for_status(policy)
        except (JobFailed, JobStopped) as error:
            self._notify(error)
            raise
        self._notify(None)
        return self

    def _notify(self, error: JobFailed | JobStopped | None) -> None:
        """Sends the notifications about the end, once."""
        if self.notifications:
            notifications, self.notifications = self.notifications, ()
            notify_all(notifications, self.record, error)

    def logs(
        self,
        *,
        follow: bool = False,
        instance: str | None = None,
        start: Mapping[str, int] | None = None,
        tail: int | None = None,
        since: datetime | None = None,
        times: bool = False,
    ) -> LogStream:
        """The log as records: `for line in job.logs(): print(line.instance, line.text)`.

        Args:
            follow: continue until the job has finished and its last line has arrived.
            instance: one instance, by its full name or its suffix (`master-0`, `worker-1`).
            start: the number of the first line, from 0, per instance by full name or suffix (the `cursor` of an
                earlier stream).
            tail: start with this number of last lines of each instance that is not in `start`.
            since: for the same instances, start with the lines written since then; without a zone, in UTC.
            times: read the time at which each line was written, `line.written_at`.

        Raises:
            InvalidInputError: `start` or `tail` has invalid numbers, or `since` is no time; while the log is read:
                the job has no such instance, or the service does not report the times.
        """
        return LogStream(
            self.backend,
            self.id,
            follow=follow,
            instance=instance,
            start=start,
            tail=tail,
            since=since,
            times=times,
        )

    async def wait_async(self, timeout: float | None = None, *, policy: FollowPolicy | None = None) -> TrainingJob:
        """Wait until the job has finished, in an asyncio program; nothing is displayed, and no thread waits.

        A cancelled task releases all its resources; the job is not stopped. For many jobs, see `gather_async`.

        Args:
            timeout: maximum time to wait, in seconds; unlimited by default.
            policy: the polling intervals.

        Returns:
            This job.

        Raises:
            InvalidInputError: `timeout` is no number.
            JobFailed: the job failed; the error has the reason.
            JobStopped: the job was stopped.
            WaitTimeoutError: the timeout has passed; the job is not stopped.

        Example:
            >>> async def model_of(job: TrainingJob) -> str:
            ...     return (await job.wait_async(timeout=3600)).outputs["model"]
        """
        await wait_async(self, seconds_or_none(timeout), policy or FollowPolicy())
        return self

    def logs_async(
        self,
        *,
        follow: bool = False,
        instance: str | None = None,
        start: Mapping[str, int] | None = None,
        tail: int | None = None,
        since: datetime | None = None,
        times: bool = False,
    ) -> LogStream:
        """The log for an asyncio program: `async for line in job.logs_async(follow=True): …`.

        The arguments are those of `logs`, and so is the stream, with its cursor.

        Raises:
            InvalidInputError: as `logs`.
        """
        return self.logs(follow=follow, instance=instance, start=start, tail=tail, since=since, times=times)

    def metrics(self, name: str | None = None, *, since: str | None = None) -> MetricList:
        """The metric values that the job reports or that its metric definitions match in its log; oldest first.

        They are available while the job runs. Reported values have a step.

        Args:
            name: only values of this metric.
            since: only values from this time on: UTC, ISO 8601, as the `timestamp` of a value.

        Returns:
            A list of values with `name`, `step`, `value`, `timestamp` and `instance`. It prints as a table, and
            `to_pandas()` gives a data frame.

        Example:
            >>> def last_loss(job: TrainingJob) -> float | None:
            ...     return job.metrics("loss")[-1].value
        """
        points = self.backend.metrics(self.id, name=name, since=since)
        return MetricList(points, explain_empty=partial(_explain_no_values, self, name))

    def events(self) -> Sequence[str]:
        """The job's events, as reported by the service."""
        return self.backend.events(self.id)

    def waiting_reason(self) -> WaitingReason | None:
        """Why the job has not started: its place in the queue, what it waits for, since when. None if it has.

        On Alibaba Cloud that is known for jobs in a quota. Otherwise the reason is the last event of the job.

        Example:
            >>> def is_next(job: TrainingJob) -> bool:
            ...     reason = job.waiting_reason()
            ...     return reason is not None and reason.position == 1
        """
        record = self.backend.get(self.id)
        if record.status not in WAITING:
            return None
        reason = self.backend.waiting_reason(record) if isinstance(self.backend, ReportsQueue) else None
        if reason is None or not reason.reason:
            text = record.reason_message or next(iter(reversed(self.events())), "")
            reason = replace(reason or WaitingReason(since=record.gmt_create_time), reason=text)
        return reason

    def usage(self) -> Sequence[InstanceUsage]:
        """The current use of processor, memory and GPU by instance. One that has just started may be missing.

        Services measure every few seconds; Docker measures during the request, for a second or two.

        Example:
            >>> def is_busy(job: TrainingJob) -> bool:
            ...     return any((one.gpu_percent or 0) > 50 for one in job.usage())
        """
        return self.backend.usage(self.id)

    @overload
    def exec(self, command: Sequence[str], *, instance: str | int | None = None) -> int: ...

    @overload
    def exec(
        self,
        command: Sequence[str],
        *,
        instance: str | int | None = None,
        all_instances: Literal[False] = False,
        input: bytes | str | None = None,
        capture: Literal[True],
    ) -> ExecResult: ...

    @overload
    def exec(
        self,
        command: Sequence[str],
        *,
        instance: None = None,
        all_instances: Literal[True],
        input: bytes | str | None = None,
        capture: Literal[True],
    ) -> Sequence[ExecResult]: ...

    @overload
    def exec(
        self,
        command: Sequence[str],
        *,
        instance: str | int | None = None,
        all_instances: bool = False,
        input: bytes | str | None = None,
        capture: bool = False,
    ) -> int | ExecResult | Sequence[ExecResult]: ...

    def exec(
        self,
        command: Sequence[str],
        *,
        instance: str | int | None = None,
        all_instances: bool = False,
        input: bytes | str | None = None,  # as in `subprocess.run`
        capture: bool = False,
    ) -> int | ExecResult | Sequence[ExecResult]:
        """Run a command in the environment of the running job: its `/ml`, working directory and variables.

        Without `input` and `capture`, the command has the terminal and the streams of this process. A lost
        connection is opened again meanwhile, and no output is lost.

        Args:
            command: the program and its arguments.
            instance: its rank, its suffix (`worker-1`) or its full name; rank 0 otherwise.
            all_instances: run the command in all instances. Lines of the output start with the rank.
            input: the standard input of the command; it is empty otherwise where the output is captured.
            capture: return the output instead of writing it.

        Returns:
            The exit code of the command, of several the highest: 128 and the number of the signal that ended it,
            127 if the job has no such program, 126 if it cannot be started. With `capture` an `ExecResult`, for
            all instances a list in the order of their ranks.

        Raises:
            InvalidInputError: the job is not running, has no such instance, or its service offers no tunnels.
            TunnelClosedError: the connection was lost for two minutes, or the instance has ended. With the `code`
                `AttemptEnded`, the job continues in another attempt.
            JobError: the job has ended before the command.

        Example:
            >>> job.exec(["df", "-h", "/ml"])  # doctest: +SKIP
            0
            >>> job.exec(["hostname"], instance="worker-0", capture=True).text  # doctest: +SKIP
            'train1-worker-0'
        """
        if not all_instances:
            return self._enter().exec(command, instance, input=input, capture=capture)
        if instance is not None:
            raise InvalidInputError([Problem("instance", "is given with all_instances", "leave out one of them")])
        return self._enter().exec_all(command, input=input, capture=capture)

    def shell(self, *, instance: str | int | None = None) -> int:
        """Open a shell in the running job, with the terminal of this process; returns its exit code.

        Args:
            instance: its rank, its suffix (`worker-1`) or its full name; rank 0 otherwise.

        Raises:
            InvalidInputError: as `exec`.
            TunnelClosedError: as `exec`.

        Example:
            >>> job.shell(instance=1)  # doctest: +SKIP
            0
        """
        return self._enter().shell(instance)

    def forward(
        self, ports: PortSpec | Sequence[PortSpec], *, instance: str | int | None = None, reverse: bool = False
    ) -> PortForward:
        """Forward ports of this machine to the running job: TensorBoard, a notebook server, a debugger in it.

        The ports are open on 127.0.0.1 until `close()` or the end of a `with` block. A lost connection to the job
        is opened again, and open connections continue. With the end of an attempt of the job they end, and later
        ones are those to its next attempt.

        Args:
            ports: a port (6006), `"LOCAL:REMOTE"` or `(LOCAL, REMOTE)`, or a list of these. The port that listens
                may be 0 for any free one.
            instance: its rank, its suffix (`worker-1`) or its full name; rank 0 otherwise.
            reverse: listen in the job, and connect to the ports of this machine.

        Raises:
            InvalidInputError: a port is invalid or in use; otherwise as `exec`.

        Example:
            >>> def read_board(job: TrainingJob) -> bytes:
            ...     with job.forward("0:6006") as forward:
            ...         return urlopen(f"http://127.0.0.1:{forward.ports[0].local}/").read()
        """
        return self._enter().forward(ports, instance, reverse=reverse)

    def stacks(
        self, *, native: bool = False, instance: str | int | None = None, timeout: float = 60.0
    ) -> JobStacks:
        """Read what the ranks of the running job do at this moment: their Python stacks, use of CPU and waits.

        All instances are read at once, from outside by py-spy, and go on meanwhile. The result prints equal stacks
        once, and first the ranks that differ from all others: those that the others wait for.

        Args:
            native: read functions of compiled libraries, too; this pauses each process for some 40 ms.
            instance: only one instance, by its rank, its suffix (`worker-1`) or its full name.
            timeout: seconds, after which processes that were not read have a `problem` instead of a stack.

        Raises:
            InvalidInputError: as `exec`, or `timeout` is no positive number.
            TunnelClosedError: no instance could be read.

        Example:
            >>> job.stacks().odd_ranks  # doctest: +SKIP
            (2,)
        """
        timeout_s = seconds_or_none(timeout)
        if not timeout_s:
            raise InvalidInputError([wrong_value("timeout", timeout, "a positive number of seconds")])
        return self._enter().stacks(instance, native=native, timeout_s=timeout_s)

    def copy_from(
        self,
        path: str,
        target: str | Path = ".",
        *,
        instance: str | int | None = None,
        progress: bool = True,
    ) -> Path:
        """Copy a file or a folder of the running job to this machine.

        A file becomes visible when it is complete. Existing files are replaced; other files of a folder stay.

        Args:
            path: the absolute path in the job, such as `/ml/output/model`.
            target: the new local path; an existing folder, or a path with a slash at its end, gets the copy
                inside.
            instance: its rank, its suffix (`worker-1`) or its full name; rank 0 otherwise.
            progress: display a progress bar.

        Returns:
            The local path of the copy.

        Raises:
            ObjectNotFoundError: the job has no such file.
            StorageError: it cannot be read or written.
            InvalidInputError: as `exec`.

        Example:
            >>> job.copy_from("/ml/output/model/config.json")  # doctest: +SKIP
            PosixPath('config.json')
        """
        return Path(self._enter().copy_from(path, target, instance, progress=progress).target)

    def copy_to(
        self,
        source: str | Path,
        path: str,
        *,
        instance: str | int | None = None,
        progress: bool = True,
    ) -> str:
        """Copy a local file or folder into the running job; `copy_from` has the rules.

        Args:
            source: the local file or folder.
            path: the absolute path in the job; an existing folder, or a path with a slash at its end, gets the
                copy inside.
            instance: its rank, its suffix (`worker-1`) or its full name; rank 0 otherwise.
            progress: display a progress bar.

        Returns:
            The path of the copy in the job.

        Raises:
            ObjectNotFoundError: there is no such local file.
            StorageError: it cannot be read or written.
            InvalidInputError: as `exec`.

        Example:
            >>> job.copy_to("eval.py", "/ml/usercode/")  # doctest: +SKIP
            '/ml/usercode/eval.py'
        """
        return self._enter().copy_to(source, path, instance, progress=progress).target

    def _enter(self) -> EnteredJob:
        from pai_sdk._client.job.entering import EnteredJob  # for weight: loads the library of WebSockets

        return EnteredJob(self.backend, self.refresh())

    def error_info(self) -> ErrorInfo | None:
        """The reason of the failure, as reported by the service; None if the job did not fail."""
        return self.backend.error_info(self.id)

    # ---- its outputs

    @property
    def outputs(self) -> dict[str, str]:
        """Output channel to URI."""
        return self.record.outputs

    @checks_keywords
    def download(self, channel: str, target: str | Path | None = None, *, progress: bool = True) -> Path:
        """Download an output channel.

        Args:
            channel: the name of the channel: `model`, `checkpoints`, …
            target: the local folder, created if missing; by default, one with the name of the channel.
            progress: display a progress bar.

        Returns:
            The folder, or the file if the output is one.

        Raises:
            InvalidInputError: the job has no such output channel.
            StorageError: the job wrote nothing there.
            TransferError: some files could not be downloaded; the others are complete.
        """
        folder = parse_path(channel if target is None else target, "target")
        return download_output(self.backend, self.record, channel, folder, progress=progress)

    def open_output(self, channel: str) -> Store:
        """The folder of an output channel as a store, to list and read its files without a download.

        Args:
            channel: the name of the channel: `model`, `checkpoints`, …

        Raises:
            InvalidInputError: the job has no such output channel.

        Example:
            >>> def sizes(job: TrainingJob) -> dict[str, int]:
            ...     return {file.path: file.size_bytes for file in job.open_output("model").list()}
        """
        return self.backend.store(output_uri(self.id, self.outputs, channel))

    def trace(self, *, uncommitted: bool = False) -> TraceData:
        """The rows that the job has traced: in its output `trace`, else in the folder `trace` of `model`.

        Args:
            uncommitted: include the rows that it has sent and not committed, as in `read_trace`.

        Raises:
            InvalidInputError: the job has neither output.
            TraceError: it has traced nothing.

        Example:
            >>> job.trace().to_pandas()  # doctest: +SKIP
        """
        return trace_of(self.backend, self.record, uncommitted=uncommitted)

    def tensorboard(self, *, port: int = 0) -> Board:
        """Start TensorBoard on the events of the job; it also displays events that the job reports later.

        Args:
            port: the port on which it listens; any free port by default.

        Returns:
            The board with its `url`; close it when it is no longer needed.

        Raises:
            InvalidInputError: the job has no output `tensorboard`.
            MissingExtraError: TensorBoard is not installed.
            ServiceStartError: it did not start.

        Example:
            >>> def look_at(job: TrainingJob) -> None:
            ...     with job.tensorboard() as board:
            ...         print(board.url)
        """
        from pai_sdk._client.job.board import open_board

        return open_board(output_uri(self.id, self.outputs, "tensorboard"), self.backend.store, port=port)

    def result(self, timeout: float | None = None, *, show_logs: bool = False) -> Any:
        """Wait for a job that runs a function, and return the function's value.

        The value is unpickled after its signature is verified: only this job and this user have the key.

        Args:
            timeout: maximum time to wait, in seconds; unlimited by default.
            show_logs: print status and log while waiting.

        Raises:
            InvalidInputError: the job runs no function.
            Exception: the exception that the function raised; its cause is the traceback in the job.
            FunctionError: it called `sys.exit` (`exit_code`), or cannot run in the image.
            JobFailed: the job failed without a result.
            JobStopped: the job was stopped.
            WaitTimeoutError: the timeout has passed; the job is not stopped.
        """
        from pai_sdk._client.job.function_result import result_of

        return result_of(self, timeout, show_logs=show_logs)

    # ---- changes

    def stop(self) -> None:
        """Request the stop of the job; returns before it has finished. `wait()` then raises `JobStopped`."""
        self.backend.stop(self.id)

    def delete(self) -> None:
        """Delete a finished job. Its outputs are not deleted.

        Raises:
            ConflictError: it has not finished, or outputs of it are not in OSS yet.
        """
        self.backend.delete(self.id)

    def update_labels(self, labels: Mapping[str, str]) -> None:
        """Add or replace labels.

        Raises:
            InvalidInputError: a name or a value is no string.
        """
        check_labels(labels)
        self.backend.update_labels(self.id, labels)
        self.refresh()

    def update(self, *, priority: int | None = None, description: str | None = None) -> None:
        """Change an unfinished job of DLC, and wait until the service shows the change, a minute at most.

        Args:
            priority: from 1 to 9, of a job in a quota.
            description: free text for people.

        Raises:
            InvalidInputError: jobs of this service cannot be changed, this one has finished, or the service has
                ignored the change.

        Example:
            >>> job.update(priority=7)  # doctest: +SKIP
        """
        if not self.backend.capabilities.updates_jobs:
            hint = "submit another one with other parameters"
            raise InvalidInputError([Problem("JOB", f"{self.id} is not a DLC job, and cannot be changed", hint)])
        cast("UpdatesJobs", self.backend).update(self.id, JobUpdates(priority, description))
        self.refresh()

    # ---- its end

    def raise_for_status(self) -> None:
        """Raise for a job that failed or was stopped; do nothing for one that succeeded or is still running.

        Raises:
            JobFailed: the job failed.
            JobStopped: the job was stopped.
        """
        self._raise_for_status()

    def _raise_for_status(self, policy: FollowPolicy | None = None, **already: Any) -> None:
        record = self.record
        if record.status.is_failure:
            raise job_failure(self.backend, record, policy, **already)
        if record.status.is_stopped:
            raise stopped_error(record)

    # ---- its display

    def render_in(self, display: Display) -> None:
        """Record the display of the job in this cell of a notebook, where one card is enough."""
        self._card.render_in(display)

    def keep_card_live(self) -> None:
        """Update the card in this cell in the background; outside of a notebook nothing happens."""
        self._card.keep_live(self)

    @property
    def card_in_cell(self) -> int | None:
        """The cell of a notebook that already displays the job."""
        return self._card.cell

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainingJob) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        if self.last_record is None:
            return f"<TrainingJob {self.id}>"
        seconds = elapsed_s(self.last_record)
        took = f" {duration_text(seconds)}" if seconds is not None else ""
        return f"<TrainingJob {self.id} {self.last_record.status}{took}>"

    def _ipython_display_(self) -> None:
        """Displays a running job by a card that updates, and any other job by `_repr_html_`."""
        self._card.display(self)

    def _repr_html_(self) -> str | None:
        return self._card.html(self)


def _page_range(page_size: int | None, page_number: int | None) -> tuple[int, int]:
    """Returns the first item of a page of a list (50 items, counted from 1), and the item after the last one."""
    size, number = 50 if page_size is None else page_size, 1 if page_number is None else page_number
    for name, value in (("page_size", size), ("page_number", number)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidInputError([wrong_value(name, value, "an integer (minimum 1)")])
    return (number - 1) * size, number * size


def _source(session: JobSource | None, *, local: bool) -> JobSource:
    source: JobSource = session_or_default(session, local=local)
    return source


def _explain_no_values(job: TrainingJob, name: str | None) -> str:
    """Says why a list of the values of a metric is empty, with the names of the metrics that the job has."""
    message = "no values" if name is None else f"no values of {name!r}"
    with suppress(PaiError):  # an explanation in a repr is not worth an error
        existing = dict.fromkeys(point.name for point in job.backend.metrics(job.id) if point.name)
        if not existing:
            return f"{message}: {_missing_metrics_reason(job)}"
        if name is not None and name not in existing:
            return f"{message}: {name_hint(name, existing)}"
    return message


def _missing_metrics_reason(job: TrainingJob) -> str:
    if not job.record.status.is_terminal:
        return "the job has reported no metrics yet"
    definitions = received(RecordedSpec, job.record.algorithm_spec).metric_definitions
    patterns = ", ".join(repr(each.regex) for each in definitions)
    reason = "the job has reported no metrics"
    return f"{reason}, and no line of its log matches its metric_definitions: {patterns}" if patterns else reason
