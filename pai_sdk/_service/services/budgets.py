"""Budgets of requests: time, size of the response, and share of the service's threads.

All budgets are declared in this module; the OpenAPI description states them with each route (`x-budget`). A route
selects its budget:

    router = APIRouter(route_class=BudgetedRoute)

    @router.get("/log/search")
    @within(SEARCH)
    def search_log(work: WorkOf, …): ...

`BudgetedRoute` admits a request or refuses it (503 with `Retry-After`), calls the route in the threads of its
share, and watches the connection: when the client disconnects, or the time is over, `Work.check` raises in the
thread. So a route with long computations calls `Work.check` between two slices of its work, and `Work.spend` for
each part of a large response. A request that exceeds its budget is refused with 400 `BudgetExceeded`; the message
names a cheaper request.

A `Shares` object belongs to one application and is used on its event loop; only the methods of `Work` are called
in threads.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Receive, Scope, Send

from pai_sdk._service.wire_errors import WireError

T = TypeVar("T")

_MIB = 1 << 20
_RETRY_AFTER_S = 2
_SEND_TIMEOUT_S = 300.0  # an unread response occupies memory and a slot until then


@dataclass(frozen=True)
class Share:
    """The part of the service that requests of one kind may use."""

    name: str
    threads: int | None = None  # None: the default threads of the event loop
    requests: int | None = None  # the maximum at once, including waiting ones; None for no limit


@dataclass(frozen=True)
class Budget:
    """The budget of one request of a route."""

    share: Share
    seconds: float  # until its response starts; of a stream: until it ends
    response_bytes: int | None  # the maximum; None for a streamed copy of a file of any size
    instead: str  # the cheaper request that the error message suggests
    values: int | None = None  # the maximum of points or hyperparameters in memory at once, if there are any
    is_stream: bool = False  # the response is created while it is sent
    reads: bool | None = None  # changes nothing, so that it may be aborted; None: true for GET and HEAD

    def to_openapi(self) -> dict[str, Any]:
        """Returns the budget for the OpenAPI description, without unlimited values."""
        fields = {
            "share": self.share.name,
            "threads": self.share.threads,
            "requests": self.share.requests,
            "seconds": self.seconds,
            "responseBytes": self.response_bytes,
            "values": self.values,
            "instead": self.instead,
        }
        return {name: value for name, value in fields.items() if value is not None}


# All shares but the first have few threads on purpose: a machine with two cores also runs the jobs. The memory
# limit is `requests` times the size of a response, plus the values that each thread has in memory.
_JOBS = Share("jobs")
_LISTS = Share("lists", threads=3, requests=16)
_CHANGES = Share("changes", threads=2)
_LOGS = Share("logs", threads=8)
_RUNS = Share("runs", threads=3, requests=48)
_COMPARE = Share("compare", threads=1, requests=6)
_SEARCH = Share("search", threads=2, requests=16)
_DOWNLOADS = Share("downloads", threads=1, requests=16)
_EVENTS = Share("events", threads=2, requests=200)

JOBS = Budget(_JOBS, 60.0, 16 * _MIB, "less at once")
"""For the actions of PAI's API. The time includes the wait of a long poll."""

LISTS = Budget(_LISTS, 60.0, 16 * _MIB, "a smaller PageSize")
"""For lists, whose items may be large."""

METRICS = Budget(_LISTS, 60.0, 16 * _MIB, "one metric by its Name, or a smaller PageSize", values=4_000_000)
"""For the points of a job's metrics, which are sorted in memory."""

CHANGES = Budget(_CHANGES, 60.0, 16 * _MIB, "fewer jobs", reads=True)
"""For long polls of the changes of many jobs; a waiting request uses no thread."""

LOGS = Budget(_LOGS, 600.0, None, "a smaller PageSize", is_stream=True)
"""For the lines of a job's log; a page of long lines is streamed."""

RUNS = Budget(_RUNS, 20.0, 16 * _MIB, "a smaller limit, fewer tags or fields, a narrower range, or buckets")
"""For repeated requests about runs."""

COMPARE = Budget(
    _COMPARE, 20.0, 32 * _MIB, "fewer buckets, tags or runs, or for columns", values=6_000_000, reads=True
)
"""For comparisons of many runs."""

DIFF = Budget(_COMPARE, 20.0, 32 * _MIB, "fewer runs", values=500_000, reads=True)
"""For the hyperparameters in which many runs differ."""

SEARCH = Budget(_SEARCH, 90.0, 64 * _MIB, "fewer hits to be shown, or one instance", is_stream=True)
"""For searches in logs: `time_limit`, and the time to send the hits."""

DOWNLOAD = Budget(_DOWNLOADS, 3600.0, None, "one instance, or lines of the log", is_stream=True)
"""For complete logs as a file."""

EVENTS = Budget(_EVENTS, 3600.0, None, "fewer topics", values=2_000_000, is_stream=True)
"""For event streams; a client that reconnects has a new budget."""


class Abandoned(Exception):
    """Raised when the client of a request has disconnected: its work ends without a response."""


@dataclass
class Work:
    """One request in progress. Its methods can be called in any thread, and do not block."""

    budget: Budget
    threads: _ShareThreads | None = None
    clock: Callable[[], float] = time.monotonic
    is_disconnected: bool = False
    _ends_at: float = field(init=False)
    _spent_bytes: int = field(init=False, default=0)
    _streams: list[Iterator[bytes]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._ends_at = self.clock() + self.budget.seconds

    @property
    def remaining_s(self) -> float:
        """Returns the remaining time in seconds."""
        return max(0.0, self._ends_at - self.clock())

    def check(self) -> None:
        """Returns only while the client is connected (else `Abandoned`) and time remains (else `WireError`)."""
        if self.is_disconnected:
            raise Abandoned
        if self.clock() > self._ends_at:
            raise self.exceeded(f"takes more than {self.budget.seconds:g} s")

    def spend(self, size_bytes: int) -> None:
        """Counts a part of the response; raises as `check` and as `require`."""
        self.check()
        self._spent_bytes += size_bytes
        self.require(self._spent_bytes)

    def require(self, size_bytes: int, description: str = "") -> None:
        """Checks the size of the complete response, known or estimated; `description` names its cause."""
        limit = self.budget.response_bytes
        if limit is not None and size_bytes > limit:
            because = f": {description}" if description else ""
            raise self.exceeded(f"has a response of more than {limit // _MIB} MiB{because}")

    def hold(self, values: int, unit: str) -> None:
        """Checks that this number of values may be in memory at once; `unit` is their name for the message."""
        limit = self.budget.values
        if limit is not None and values > limit:
            raise self.exceeded(f"needs {values:,} {unit}, and {limit:,} are allowed")

    def exceeded(self, reason: str) -> WireError:
        """Returns the refusal of a request that costs too much; `reason` begins with a verb."""
        return WireError(400, "BudgetExceeded", f"The request {reason}. Ask for {self.budget.instead}.")

    async def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Calls a function in a thread of the share; a cancelled caller still waits for its end."""
        if self.threads is None:
            raise RuntimeError("this work has no threads")
        return await self.threads.run(partial(function, *args, **options), self.remaining_s)

    async def stream_chunks(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yields the chunks of a stream, each created in a thread of the share when the one before was sent."""
        self._streams.append(chunks)
        while (chunk := await self.run(next, chunks, None)) is not None:
            self.spend(len(chunk))
            yield chunk

    async def close_streams(self) -> None:
        """Closes the generators of streams whose client has left: they hold open files, also deleted ones."""
        for chunks in self._streams:
            if self.threads is not None and isinstance(chunks, Generator):
                await self.threads.run(chunks.close, math.inf)


_CURRENT: ContextVar[Work] = ContextVar("work")


async def _work() -> Work:
    return _CURRENT.get()


WorkOf = Annotated[Work, Depends(_work)]
"""A parameter of a route: its `Work`, for checks between two slices of work."""


class _ShareThreads:
    """The threads and slots of one share of one application."""

    def __init__(self, share: Share, slot_timeout_s: float) -> None:
        self._share = share
        self._slot_timeout_s = slot_timeout_s

    @cached_property
    def _slots(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(self._share.requests or math.inf)

    @cached_property
    def _limiter(self) -> anyio.CapacityLimiter:
        # Limiters can only be created inside the running event loop.
        if self._share.threads is None:
            return anyio.to_thread.current_default_thread_limiter()
        return anyio.CapacityLimiter(self._share.threads)

    @cached_property
    def _unlimited(self) -> anyio.CapacityLimiter:
        # `_limiter` counts the threads; `run_sync` needs a limiter of its own.
        return anyio.CapacityLimiter(math.inf)

    async def acquire_slot(self, stack: ExitStack) -> None:
        """Acquires a slot for a request, released with `stack`; refuses the request after some seconds."""
        await self._acquire(self._slots, stack, self._slot_timeout_s)

    async def run(self, function: Callable[[], T], wait_s: float) -> T:
        """Calls a function in a thread, after a wait of at most `wait_s`."""
        # Two limiters: only the wait for a thread has a time limit, because a running thread cannot be stopped.
        with ExitStack() as stack:
            await self._acquire(self._limiter, stack, wait_s)
            return await anyio.to_thread.run_sync(function, limiter=self._unlimited)

    async def _acquire(self, limiter: anyio.CapacityLimiter, stack: ExitStack, wait_s: float) -> None:
        # The slot is released by another task than the one that acquires it, so it is borrowed by an object.
        borrower = object()
        try:
            with anyio.fail_after(wait_s):
                await limiter.acquire_on_behalf_of(borrower)
        except TimeoutError as error:
            message = (
                f"This service has no capacity left for requests of the kind {self._share.name!r}; try again."
            )
            raise WireError(503, "ServiceBusy", message, retry_after_s=_RETRY_AFTER_S) from error
        stack.callback(limiter.release_on_behalf_of, borrower)


class Shares:
    """The shares of one application, in its `state.shares`."""

    def __init__(self) -> None:
        self.slot_timeout_s = 10.0
        self._threads: dict[Share, _ShareThreads] = {}

    def of(self, share: Share) -> _ShareThreads:
        """Returns the threads of a share."""
        # Only on the event loop, so no lock is needed.
        return self._threads.setdefault(share, _ShareThreads(share, self.slot_timeout_s))


def within(budget: Budget) -> Callable[[T], T]:
    """Declares the budget of a route, below `@router.get`; routes without one have `JOBS`."""

    def declared(endpoint: T) -> T:
        endpoint.__dict__["budget"] = budget
        return endpoint

    return declared


class BudgetedRoute(APIRoute):
    """A route that enforces its budget; for `APIRouter(route_class=…)`."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.budget: Budget = getattr(endpoint, "budget", JOBS)
        # FastAPI would build the schemas of all models at the import, which adds 0.7 s to the service's start.
        # It does not need them: routes return complete responses.
        model = options.pop("response_model", None)
        # For the description of the API.
        self.response_body: type[Any] | None = model if isinstance(model, type) else None
        if not inspect.iscoroutinefunction(endpoint):
            endpoint = _in_share_threads(endpoint)
        described = {**(options.pop("openapi_extra", None) or {}), "x-budget": self.budget.to_openapi()}
        super().__init__(path, endpoint, openapi_extra=described, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the handler of the route's requests."""
        handler = super().get_route_handler()

        async def budgeted(request: Request) -> Response:
            shares: Shares = request.app.state.shares
            threads = shares.of(self.budget.share)
            with ExitStack() as stack:
                await threads.acquire_slot(stack)
                work = Work(self.budget, threads)
                response = await _watched(handler, request, work)
                return _Metered(response, work, stack.pop_all())

        return budgeted


def _in_share_threads(endpoint: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Turns a plain function into a coroutine that calls it in the threads of its share."""

    @functools.wraps(endpoint)
    async def called(*args: Any, **options: Any) -> T:
        return await _CURRENT.get().run(endpoint, *args, **options)

    # FastAPI would resolve the annotations of `called` with the globals of this module, so they are resolved here,
    # with those of the endpoint.
    del called.__wrapped__
    called.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]
    return called


async def _watched(
    handler: Callable[[Request], Coroutine[Any, Any, Response]], request: Request, work: Work
) -> Response:
    """Handles a request as long as its client is connected."""
    reads = work.budget.reads if work.budget.reads is not None else request.method in ("GET", "HEAD")
    # A change is never aborted: it must not depend on its client.
    if not reads:
        _CURRENT.set(work)
        return await handler(request)
    # Read first: the next message after the body is the disconnect.
    await request.body()
    # The handler runs in this task: when the scope is cancelled, it waits for its thread, which ends at its next
    # `Work.check`.
    with anyio.CancelScope() as scope:
        watch = asyncio.create_task(_watch_disconnect(request.receive, work, scope))
        try:
            with anyio.move_on_after(work.remaining_s) as timed:
                _CURRENT.set(work)
                response = await handler(request)
                work.require(len(getattr(response, "body", b"")))  # a stream has none
                return response
        except Abandoned:
            pass
        finally:
            watch.cancel()
        if timed.cancelled_caught:
            raise work.exceeded(f"takes more than {work.budget.seconds:g} s")
    # The client has disconnected.
    return Response(status_code=499)


async def _watch_disconnect(receive: Receive, work: Work, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    work.is_disconnected = True
    scope.cancel()


class _Metered(Response):
    """A response that keeps its slot until it was sent, and notices when its client disconnects."""

    def __init__(self, response: Response, work: Work, stack: ExitStack) -> None:
        # The base is not initialized: only the wrapped response is sent.
        self._response = response
        self._work = work
        self._stack = stack
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the wrapped response."""

        async def receive_and_watch() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._work.is_disconnected = True
            return message

        timeout_s = self._work.remaining_s if self._work.budget.is_stream else _SEND_TIMEOUT_S
        with self._stack:
            try:
                with suppress(Abandoned), anyio.fail_after(timeout_s):
                    await self._response(scope, receive_and_watch, send)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._work.close_streams()
