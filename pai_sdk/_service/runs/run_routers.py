"""All routes of runs. They read from `app.state.context.runs`."""

from __future__ import annotations

from pai_sdk._service.runs import (
    compare_routes,
    event_stream,
    file_routes,
    log_routes,
    media_routes,
    no_job_routes,
    run_routes,
    trace_routes,
)

__all__ = ["ROUTERS"]

ROUTERS = (
    log_routes.router,
    file_routes.router,
    trace_routes.router,
    media_routes.router,
    no_job_routes.router,
    run_routes.router,
    compare_routes.router,
    event_stream.router,
)
"""The order matters: ids of runs may have slashes, so the routes of one run come after all longer paths."""
