"""Delivers the messages of the queue, by a few threads."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from pai_sdk._data.notify.guard import AddressGuard
from pai_sdk._data.notify.messages import MAX_LINES, Message
from pai_sdk._data.notify.refusals import NotDeliveredError
from pai_sdk._data.notify.targets import Target, target_from_wire
from pai_sdk._service.periodic_task import PeriodicTask
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.notifications.queue import NotificationQueue, Queued
from pai_sdk._service.services.notifications.sealing import SealError
from pai_sdk._service.state.disk import DiskWatch
from pai_sdk._service.wire_errors import WireError
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)

MAX_PER_MINUTE = 10
"""Messages to one target; further ones are folded into the last one. Robots allow 20."""

_WINDOW_S = 60.0
_MAX_FOLDED = 200
_FIRST_PAUSE_S = 5.0
_MAX_PAUSE_S = 3600.0
_GIVE_UP_S = 24 * 3600.0
_MAX_SLEEP_S = 30.0  # the system clock may be set, and waits do not count suspend
_MAX_LOG_BYTES = 256 << 10
_MAX_THREADS = 4  # of targets that are sent to at the same time; Apprise starts a process for each message
_CLOSE_S = 5.0  # a message to a slow target is sent again after the next start
_SOON_S = 300.0  # a service that is idle otherwise waits so long for the next attempt


class NotificationWorker:
    """Delivers messages: each once, or the events of its job say why not.

    A message is removed after its delivery: a service that is killed between the two sends it again, with the same
    `id`. After a failed attempt, all messages to that target wait, longer each time: one that does not respond
    must not delay the others. Nor must one that responds slowly: each target is sent to by a thread of its own.

    `_lock` guards `_threads` and `_error`.
    """

    def __init__(
        self,
        queue: NotificationQueue,
        guard: AddressGuard,
        *,
        add_event: Callable[[str, str], None],
        read_lines: Callable[[str], Sequence[str]] = lambda job_id: (),
        disk: DiskWatch,
        can_act: Callable[[], bool] = lambda: True,
        now: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._queue = queue
        self._guard = guard
        self._add_event = add_event
        self._read_lines = read_lines
        self._can_act = can_act
        self._now = now
        self._jitter = jitter
        self._sent_at: dict[str, deque[float]] = {}  # by target: of the last minute
        self._next_at: float | None = None
        self._threads: dict[str, threading.Thread] = {}  # by target
        self._error: Exception | None = None  # of the queue, in one of these threads
        self._lock = threading.Lock()
        self.task = PeriodicTask(
            "notifications",
            self._pause_s,
            self._run,
            on_error=partial(disk.log_error, "the queue of notifications cannot be read, and is tried again"),
            can_act=can_act,
        )
        queue.on_change = self.task.wake

    @property
    def is_idle(self) -> bool:
        """Returns True if no message is sent or due soon."""
        next_at = self._next_at
        with self._lock:
            is_working = bool(self._threads) or self.task.is_pending
        return not is_working and (next_at is None or next_at - self._now() > _SOON_S)

    def start_due(self) -> None:
        """Starts to deliver the messages that are due now; the task is woken when their targets are done."""
        now = self._now()
        for identity in self._queue.due_identities(now):
            if self.task.closing.is_set() or not self._can_act():
                return
            with self._lock:
                if len(self._threads) >= _MAX_THREADS:
                    break
                if identity not in self._threads:
                    thread = threading.Thread(
                        target=self._send, args=(identity,), name="notification", daemon=True
                    )
                    self._threads[identity] = thread
                    thread.start()
        self._next_at = self._queue.next_at(now)

    def join(self, deadline_s: float) -> bool:
        """Waits for the targets that are sent to; returns False if some are not done by the deadline."""
        until_s = time.monotonic() + deadline_s
        with self._lock:
            threads = [*self._threads.values()]
        for thread in threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def close(self) -> None:
        """Stops the threads. A message that is on its way may be sent again after the next start."""
        self.task.close()
        if not self.join(_CLOSE_S):
            logger.warning("a target of notifications does not respond; its message stays in the queue")

    # ---- the threads --------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._lock:
            error, self._error = self._error, None
        if error is not None:  # the task logs it, and makes a pause
            raise error
        self.start_due()
        earliest = self._now() - _WINDOW_S
        # In this thread only, so that no target is started meanwhile.
        for identity, times in [*self._sent_at.items()]:
            if identity not in self._threads and (not times or times[-1] <= earliest):
                del self._sent_at[identity]

    def _send(self, identity: str) -> None:
        error = None
        try:
            self._run_target(identity)
        except Exception as failure:  # such as a full disk
            error = failure
        # Together: the worker is never idle in between.
        with self._lock:
            del self._threads[identity]
            self._error = self._error or error
            self.task.wake()

    def _pause_s(self) -> float | None:
        if self._next_at is None:
            return None
        return min(max(0.0, self._next_at - self._now()), _MAX_SLEEP_S)

    # ---- one target ---------------------------------------------------------------------------------------

    def _run_target(self, identity: str) -> None:
        now = self._now()
        sent_at = self._sent_at.setdefault(identity, deque())
        while sent_at and sent_at[0] <= now - _WINDOW_S:
            sent_at.popleft()
        slots = MAX_PER_MINUTE - len(sent_at)
        if slots <= 0:
            self._queue.postpone(identity, sent_at[0] + _WINDOW_S)
            return
        messages = self._queue.pending(identity, now, _MAX_FOLDED)
        for group in _groups(messages, slots):
            if self.task.closing.is_set() or not self._can_act():
                return
            sent_at.append(now)
            if not self._deliver(identity, group):
                return

    def _deliver(self, identity: str, group: Sequence[Queued]) -> bool:
        """Delivers a group of messages as one; returns False if the target must be left alone for now."""
        first = group[0]
        target: Target | None = None
        try:
            target = target_from_wire(self._queue.sealer.unseal(first.sealed))
            target.deliver(self._content(group), self._guard)
        except NotDeliveredError as error:
            return self._record_failure(identity, group, target, error)
        except (SealError, PaiError) as error:
            reason = str(error) if isinstance(error, SealError) else type(error).__name__
            refusal = NotDeliveredError(reason, is_transient=False)
            return self._record_failure(identity, group, target, refusal)
        except Exception as error:
            # Only the type: the text of an unexpected error may have the URL, which may be secret.
            refusal = NotDeliveredError(f"internal error ({type(error).__name__})", is_transient=True)
            return self._record_failure(identity, group, target, refusal)
        self._queue.remove(group)
        return True

    def _content(self, group: Sequence[Queued]) -> Message:
        message = group[0].message
        if not message.lines and group[0].job_id is not None and message.code != "JobSucceeded":
            with suppress(Exception):  # a message without the log is better than none
                message = replace(message, lines=[*self._read_lines(group[0].job_id)][-MAX_LINES:])
        return message.with_more([each.message.title for each in group[1:]])

    def _record_failure(
        self, identity: str, group: Sequence[Queued], target: Target | None, error: NotDeliveredError
    ) -> bool:
        now, attempts = self._now(), group[0].attempts + 1
        name = "a target" if target is None else repr(target)
        is_final = not error.is_transient or now - group[0].created_at >= _GIVE_UP_S
        if is_final:
            self._queue.remove(group)
            self._report(group, f"NotificationFailed: {{title}} was not sent to {name}: {error}")
            return True
        pause_s = self._pause_after(attempts, error.retry_after_s)
        self._queue.postpone(identity, now + pause_s, failed=group)
        if attempts == 1:
            self._report(
                group, f"NotificationDelayed: {{title}} has not reached {name}, and is sent again: {error}"
            )
        return False

    def _pause_after(self, attempts: int, requested_s: float | None) -> float:
        """Returns the seconds until the next attempt, with jitter; the pause that a target requests is its own."""
        if requested_s is not None:
            return min(max(1.0, requested_s), _GIVE_UP_S)
        bound = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(attempts - 1, 30))
        return bound * (0.5 + 0.5 * self._jitter())

    def _report(self, group: Sequence[Queued], text: str) -> None:
        for queued in group:
            # Not `format`: the reason of a target may have braces.
            event = text.replace("{title}", repr(queued.message.title))
            logger.warning("job %s: %s", queued.job_id, event)
            if queued.job_id is not None:
                with suppress(WireError):  # the job was deleted meanwhile
                    self._add_event(queued.job_id, event)


def _groups(messages: Sequence[Queued], slots: int) -> list[Sequence[Queued]]:
    """Returns messages one by one; with fewer slots than messages, the last slot has all the others."""
    if len(messages) <= slots:
        return [[message] for message in messages]
    return [*([message] for message in messages[: slots - 1]), messages[slots - 1 :]]


def start_notifications(
    context: ServiceContext, can_act: Callable[[], bool], stack: ExitStack
) -> NotificationWorker:
    """Starts the worker of a service; it stops with the stack."""
    settings, jobs, queue = context.settings, context.jobs, context.notifications

    def read_lines(job_id: str) -> Sequence[str]:
        job = jobs.get(job_id)
        log = context.logs.open(job, job.failed_instance)
        start = max(0, log.total - MAX_LINES)
        return log.page(start, MAX_LINES, max_bytes=_MAX_LOG_BYTES, has_full_lines=True).decoded_lines

    worker = NotificationWorker(
        queue,
        # A service that a client has started for itself sends what its own user could send as well.
        AddressGuard.of(settings.notify_allow, allows_private=settings.embedded),
        add_event=jobs.add_event,
        read_lines=read_lines,
        disk=DiskWatch(context.info.data_dir),
        can_act=can_act,
    )
    worker.task.start()
    stack.callback(worker.close)
    return worker
