"""The routers of DLC."""

from __future__ import annotations

from pai_sdk._service.routes.dlc import jobs, pods

ROUTERS = tuple(module.router for module in (jobs, pods))
"""All of them, for the API: before those of the other APIs, because the version of a request selects them."""
