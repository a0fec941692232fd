"""The routers of DLC."""

from __future__ import annotations

from pai_sdk._service.routes.dlc import jobs, offline, pods, resources, templates, tensorboards

_MODULES = (jobs, pods, templates, tensorboards, resources, offline)
ROUTERS = (*(module.router for module in _MODULES), resources.shared_router)
"""All of them, for the API: before those of the other APIs, because the version of a request selects them."""
