"""All routes of runs. They read from `app.state.context.runs`."""

from __future__ import annotations

from pai_sdk._service.routes.runs import compare, event_stream, files, logs, media, no_job, runs, traces

ROUTERS = tuple(module.router for module in (logs, files, traces, media, no_job, runs, compare, event_stream))
"""The order matters: ids of runs may have slashes, so the routes of one run come after all longer paths."""
