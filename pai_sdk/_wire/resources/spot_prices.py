"""Prices of spot instances over time."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Integer, Number, Query, String

__all__ = ["SpotPrice", "SpotPriceList", "SpotPriceQuery"]


class SpotPriceQuery(Query):
    """The parameters of GetSpotPriceHistory. Pages and order are for Lingjun's types; times are UTC."""

    start_time: String = None
    end_time: String = None
    spot_duration: Integer = None
    sort_by: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None


class SpotPrice(Body):
    """The price of a spot instance in a zone from a time on, as a part of the full price: 0.1 is a tenth."""

    instance_type: String = None
    zone_id: String = None
    timestamp: String = None
    spot_discount: Number = None


class SpotPriceList(Body):
    """The response of GetSpotPriceHistory."""

    keeps_empty = frozenset({"SpotPriceHistory", "spot_price_history"})

    spot_price_history: list[SpotPrice] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None
