"""`pai-sdk pipeline`: run, show, resume and stop pipelines."""

from __future__ import annotations

__all__: list[str] = []
