"""Checks of nodes before a job runs on them."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Integer, Query, String

__all__ = ["SanityCheck", "SanityCheckItem", "SanityCheckList", "SanityCheckListQuery", "SanityCheckQuery"]


class SanityCheckItem(Body):
    """A step of a check."""

    check_number: Integer = None
    phase: String = None
    status: String = None
    finished_at: String = None
    message: String = None
    started_at: String = None


class SanityCheckQuery(Query):
    """The parameters of GetJobSanityCheckResult."""

    sanity_check_number: Integer = None
    sanity_check_phase: String = None
    token: String = Field(default=None, repr=False)


class SanityCheck(Body):
    """The response of GetJobSanityCheckResult."""

    keeps_empty = frozenset({"SanityCheckResult", "sanity_check_result"})

    job_id: String = None
    request_id: String = Field(default=None, alias="RequestID")
    sanity_check_result: list[SanityCheckItem] = Field(default_factory=list)


class SanityCheckListQuery(Query):
    """The parameters of ListJobSanityCheckResults."""

    order: String = None


class SanityCheckList(Body):
    """The response of ListJobSanityCheckResults: a list for each check."""

    keeps_empty = frozenset({"SanityCheckResults", "sanity_check_results"})

    sanity_check_results: list[list[SanityCheckItem]] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = Field(default=None, alias="RequestID")
