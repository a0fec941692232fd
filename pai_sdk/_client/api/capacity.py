"""Instance types, prices of spot instances, and the queues of quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, TypeVar

from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.api.resource import Resource
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.body import Body, received
from pai_sdk._wire.dlc.resources.ecs_specs import EcsSpec, EcsSpecQuery
from pai_sdk._wire.dlc.times import seconds_of, wire_time
from pai_sdk._wire.resources.spot_prices import SpotPrice, SpotPriceList, SpotPriceQuery
from pai_sdk._wire.resources.workloads import Workload, WorkloadList, WorkloadQuery
from pai_sdk.errors import InvalidInputError, Problem

__all__ = ["InstanceTypes", "Quotas"]

_BodyT = TypeVar("_BodyT", bound=Body)
_MAX_HISTORY_H = 7 * 24  # what GetSpotPriceHistory has
_MAX_ITEMS = 100_000  # a service that ignores page numbers would go on for ever


class InstanceTypes:
    """The instance types of a region and their spot prices; `session.instance_types`."""

    def __init__(self, to_pai: Transport, to_dlc: Transport) -> None:
        self._prices = _SpotPrices(to_pai)
        self._jobs = DlcJobs(to_dlc)

    def list(
        self,
        *,
        names: Sequence[str] = (),
        accelerator: Literal["CPU", "GPU"] | None = None,
        resource_type: Literal["ECS", "Lingjun"] | None = None,
    ) -> Iterator[EcsSpec]:
        """Calls ListEcsSpecs, all pages: processors, memory, GPUs, whether there are some.

        Args:
            names: only these types.
            accelerator: only types with, or without GPUs.
            resource_type: only types of these resources.
        """
        return self._jobs.ecs_specs(
            EcsSpecQuery(
                instance_types=",".join(names) or None, accelerator_type=accelerator, resource_type=resource_type
            )
        )

    def spot_history(
        self, instance_type: str, *, hours: float = 72, protected: bool = False
    ) -> Sequence[SpotPrice]:
        """Calls GetSpotPriceHistory: the parts of the full price that a spot instance has cost, oldest first.

        Args:
            instance_type: such as `ecs.gn7i-c8g1.2xlarge`.
            hours: how long ago the history begins, up to 168.
            protected: of instances that are not taken back in their first hour.
        """
        if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 < hours <= _MAX_HISTORY_H:
            raise InvalidInputError([Problem("hours", f"{hours!r} is not between 0 and {_MAX_HISTORY_H}")])
        since = datetime.now(timezone.utc) - timedelta(hours=hours)
        query = SpotPriceQuery(start_time=wire_time(since.timestamp()), spot_duration=int(protected))
        prices = [each for each in self._prices.list(instance_type, query) if each.spot_discount is not None]
        return sorted(prices, key=lambda each: seconds_of(each.timestamp) or 0)

    def spot_prices(self, prices: Mapping[str, float], *, hours: float = 72) -> dict[str, float]:
        """Returns prices with those of spot instances, for `prices=` beside `max_cost=`.

        The price of a spot instance is the highest of the last `hours` in any zone. Types without a history, which
        have no spot instances, are left as they are.

        Example:
            >>> prices = session.instance_types.spot_prices({"ecs.gn7i-c8g1.2xlarge": 14.2})  # doctest: +SKIP
            >>> prices  # doctest: +SKIP
            {'ecs.gn7i-c8g1.2xlarge': 14.2, 'ecs.gn7i-c8g1.2xlarge spot': 4.26}
        """
        of_spot = {}
        for name, price in prices.items():
            if name.endswith(" spot") or f"{name} spot" in prices:
                continue
            parts = [each.spot_discount or 0.0 for each in self.spot_history(name, hours=hours)]
            if parts:
                of_spot[f"{name} spot"] = round(price * max(parts), 6)
        return {**prices, **of_spot}


class _SpotPrices(Resource):
    def list(self, instance_type: str, query: SpotPriceQuery) -> Iterator[SpotPrice]:
        path, params = "/api/v1/spots/{instance_type}/pricehistory", {"instance_type": instance_type}
        pages = self._pages(SpotPriceList, "GetSpotPriceHistory", path, params, query.to_query())
        return _unique(SpotPrice, pages)


class Quotas(Resource):
    """What runs and waits in the quotas of the account; `session.quotas`."""

    def workloads(
        self, quota_id: str, *, ids: Sequence[str] = (), ahead_of: str | None = None, is_direct: bool | None = None
    ) -> Iterator[Workload]:
        """Calls ListQuotaWorkloads, all pages: jobs, notebooks and services, with their place in the queue.

        Args:
            quota_id: such as `quota1xjcumbfm7aai`.
            ids: only these, such as the ids of jobs.
            ahead_of: only what is before this one in the queue.
            is_direct: only those of the quota itself, not of quotas within it.
        """
        query = WorkloadQuery(workload_ids=",".join(ids) or None, before_workload_id=ahead_of, show_own=is_direct)
        path, params = "/api/v1/quotas/{quota_id}/workloads", {"quota_id": quota_id}
        pages = self._pages(WorkloadList, "ListQuotaWorkloads", path, params, query.to_query())
        return _unique(Workload, pages)


def _unique(model: type[_BodyT], pages: Iterator[Any]) -> Iterator[_BodyT]:
    """Yields the items of pages, each once: a service without pages gives all of them in each response."""
    yielded: set[str] = set()
    for page in pages:
        items = [received(model, each) for each in page or () if isinstance(each, Mapping)]
        new = [each for each in items if each.to_json() not in yielded]
        if not new or len(yielded) > _MAX_ITEMS:
            return
        yielded.update(each.to_json() for each in new)
        yield from new
