"""Health checks at `/healthz`, for load balancers and monitors: they need no key and return no data."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from anyio import CapacityLimiter, to_thread
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pai_sdk._service.oss.oss_request import bucket_in_host, host_of, is_signed

logger = logging.getLogger(__name__)

PATH = "/healthz"
"""Clients of OSS request a bucket of that name as `/healthz/`."""


def is_health_check(scope: Scope) -> bool:
    """Returns whether a request is a health check; monitors may add a query, and proxies an authorization."""
    if scope["path"] != PATH or scope["method"] not in ("GET", "HEAD"):
        return False
    # A signed request with a bucket in its host reads an object of this name.
    return bucket_in_host(host_of(scope)) is None or not is_signed(scope)


def health_of(checks: Mapping[str, tuple[Callable[[], bool], str]], *, timeout_s: float) -> ASGIApp:
    """Returns an application that responds with 200 while all checks succeed, else with 503 and the problems."""
    # One thread for each check, apart from those of requests: a check that hangs blocks no other check.
    threads = {name: CapacityLimiter(1) for name in checks}

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        works = await asyncio.gather(
            *(_works(name, check, threads[name], timeout_s) for name, (check, _) in checks.items())
        )
        problems = {
            name: text for (name, (_, text)), is_well in zip(checks.items(), works, strict=True) if not is_well
        }
        body = {"status": "failing", "problems": problems} if problems else {"status": "ok"}
        response = JSONResponse(body, 503 if problems else 200, headers={"Cache-Control": "no-store"})
        await response(scope, receive, send)

    return respond


async def _works(name: str, check: Callable[[], bool], thread: CapacityLimiter, timeout_s: float) -> bool:
    # The thread of a check that hangs stays busy: the next check of that part waits for it, and fails too.
    result = to_thread.run_sync(check, abandon_on_cancel=True, limiter=thread)
    try:
        return await asyncio.wait_for(result, timeout_s)
    except Exception as error:  # any error means that the part does not work
        logger.warning("the health check of the %s failed: %s", name, type(error).__name__)
        return False
