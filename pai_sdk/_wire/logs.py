"""Logs and events of training jobs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pai_sdk._wire.base import Received, Strings
from pai_sdk._wire.pai.wire import NullableList

__all__ = ["EventList", "LogLines"]


class LogLines(Received):
    """The response of ListTrainingJobLogs. Only services of this package have the times of the lines."""

    logs: Strings = None
    total_count: Any = Field(default=None, json_schema_extra={"type": "string"})
    line_times: Strings = None


class EventList(Received):
    """The response of ListTrainingJobEvents and ListTrainingJobInstanceEvents."""

    events: NullableList[str] = Field(default_factory=list)
    total_count: int | str | None = None
