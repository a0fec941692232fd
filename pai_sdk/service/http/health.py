"""Whether the service works, at `/healthz`: for load balancers and monitors, without a key and without data."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from anyio import CapacityLimiter, to_thread
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pai_sdk.service.objects.oss_request import bucket_in_host, host_of, is_signed

__all__ = ["PATH", "health_of", "is_health_check"]

logger = logging.getLogger(__name__)

PATH = "/healthz"
"""Its path. A bucket of that name is at `/healthz/`, as clients of OSS ask for it."""

_LONGEST_S = 5.0


def is_health_check(scope: Scope) -> bool:
    """True if a request asks for the health; monitors may add a query, and proxies an authorization."""
    if scope["path"] != PATH or scope["method"] not in ("GET", "HEAD"):
        return False
    return bucket_in_host(host_of(scope)) is None or not is_signed(scope)  # there, it is an object of the bucket


def health_of(checks: Mapping[str, tuple[Callable[[], bool], str]]) -> ASGIApp:
    """An application that responds with 200 while all checks succeed, else with 503 and what fails.

    Args:
        checks: name of a part to a function that is false, or raises, when the part does not work, and a sentence
            that says so. It may wait; after 5 seconds the part does not work.
    """
    # Threads of their own: checks that hang take none from the requests, nor from the checks of other parts.
    threads = {name: CapacityLimiter(1) for name in checks}

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        works = await asyncio.gather(*(_works(name, check, threads[name]) for name, (check, _) in checks.items()))
        problems = {
            name: text for (name, (_, text)), is_well in zip(checks.items(), works, strict=True) if not is_well
        }
        body = {"status": "failing", "problems": problems} if problems else {"status": "ok"}
        response = JSONResponse(body, 503 if problems else 200, headers={"Cache-Control": "no-store"})
        await response(scope, receive, send)

    return respond


async def _works(name: str, check: Callable[[], bool], thread: CapacityLimiter) -> bool:
    look = to_thread.run_sync(check, abandon_on_cancel=True, limiter=thread)
    try:
        return await asyncio.wait_for(look, _LONGEST_S)
    except Exception as error:  # whatever it is, the part does not work
        logger.warning("the health check of the %s failed: %s", name, type(error).__name__)
        return False
