"""Counts of jobs. The public clients of today have no such action; older ones do."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import AnyMap, Body, Query, String

__all__ = ["JobStatistics", "StatisticsQuery"]


class StatisticsQuery(Query):
    """The parameters of BatchGetJobsStatistics; ids are between commas."""

    workspace_ids: String = None


class JobStatistics(Body):
    """The response of BatchGetJobsStatistics: workspace to status to number of jobs."""

    keeps_empty = frozenset({"Statistics", "statistics"})

    statistics: AnyMap = Field(default_factory=dict)
    request_id: String = None
