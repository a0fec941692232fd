"""Links that sign a browser in, and tokens that give access to jobs for a limited time."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.base import Received, Sent


class NewPageLink(Sent):
    """The body of CreatePageLink."""

    job_id: str | None = Field(default=None, description="A job; the list without it.")


class PageLink(Received):
    """A link for one browser."""

    url: str = Field(description="Signs one browser in, within a minute.")


class JobToken(Received):
    """The response of GetToken."""

    token: str
