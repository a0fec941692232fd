"""Quotas of a workspace, as the workspace API lists them."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Integer, Query, String

__all__ = ["QuotaList", "QuotaQuery", "QuotaRecord", "QuotaSpec"]


class QuotaQuery(Query):
    """The parameters of ListQuotas."""

    name: String = None


class QuotaSpec(Body):
    """One amount of a quota."""

    name: String = None
    type: String = None
    value: String = None


class QuotaRecord(Body):
    """A quota."""

    keeps_empty = frozenset({"Specs", "specs"})

    id: String = None
    name: String = None
    display_name: String = None
    mode: String = None
    product_code: String = None
    quota_type: String = None
    specs: list[QuotaSpec] = Field(default_factory=list)


class QuotaList(Body):
    """A page of ListQuotas."""

    keeps_empty = frozenset({"Quotas", "quotas"})

    quotas: list[QuotaRecord] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None
