"""The body of a refusal."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.base import Received


class ErrorBody(Received):
    """A refusal: codes are for programs, messages for people."""

    request_id: str
    code: str
    message: str
    host_id: str
    command: str | None = Field(default=None, description="What the user can type, if that helps.")
