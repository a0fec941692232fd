"""Logs and events of training jobs."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from pai_sdk._wire.base import Received
from pai_sdk.schemas.wire import NullableList

__all__ = ["EventList", "LogLines"]

# Tolerant: a client that follows a log must not fail because of one line.
_Lines: TypeAlias = Annotated[
    list[Any] | None,
    BeforeValidator(lambda value: value if isinstance(value, list) else None),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "null"]}}),
]


class LogLines(Received):
    """The response of ListTrainingJobLogs. Only services of this package have the times of the lines."""

    logs: _Lines = None
    total_count: Any = Field(default=None, json_schema_extra={"type": "string"})
    line_times: _Lines = None


class EventList(Received):
    """The response of ListTrainingJobEvents and ListTrainingJobInstanceEvents."""

    events: NullableList[str] = Field(default_factory=list)
    total_count: int | str | None = None
