"""The cost of a job: the price of its instances per hour, recorded at its start, times the time that they ran."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from pai_sdk._core.prices import PriceList
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Job, JobPrice
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.pai.compute import ComputeResource, InstanceSpec
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus

_HOUR_S = 3600.0
_DECIMALS = 4  # a second of the cheapest instances is still a number above 0
_LIMITED = "SpotWithPriceLimit"


@dataclass(frozen=True)
class JobCost:
    """The cost of a job at any time: it grows from `since`, or is final (None)."""

    per_hour: float  # of all instances together
    currency: str
    past_s: float  # running time before `since`
    since: float | None

    def at(self, now: float) -> float:
        """Returns the cost until now."""
        seconds = self.past_s + (0.0 if self.since is None else max(0.0, now - self.since))
        return round(self.per_hour * seconds / _HOUR_S, _DECIMALS)


@dataclass(frozen=True)
class _Instances:
    """Instances of a job that are alike."""

    count: int
    type: str | None
    spec: InstanceSpec | None
    is_spot: bool = False
    spot_limit: float | None = None  # the maximum part of the full price

    def price(self, prices: PriceList) -> float | None:
        if self.type:
            each = prices.of_type(self.type, is_spot=self.is_spot, spot_limit=self.spot_limit)
        else:
            spec = self.spec or InstanceSpec()
            cpus, gpus = _amount(spec.cpu), _amount(spec.gpu)
            each = prices.of_resources(cpus, int(gpus), spec.gpu_type or "")
        return None if each is None else each * self.count


def record_price(prices: PriceList, session: Session, job: Job) -> None:
    """Records the price of a job that starts; later changes of the list do not change its cost.

    A job that ran before without a price has none later, because its cost would be incomplete.
    """
    if sum(change.status == JobStatus.RUNNING for change in job.transitions) != 1:
        return
    row = session.get(DlcJobRow, job.number)
    specs = [] if row is None else received(NewJob, row.body).job_specs
    per_hour = price_of(prices, TrainingJobRequest.model_validate(job.request), specs)
    if per_hour is not None:
        session.merge(JobPrice(job_id=job.id, per_hour=per_hour, currency=prices.currency))


def price_of(prices: PriceList, request: TrainingJobRequest, specs: Collection[JobSpec] = ()) -> float | None:
    """Returns the price per hour of all instances of a job; None if that of any of them is unknown.

    `specs` are those of a job of DLC: its request has no terms of spot instances.
    """
    each = [instances.price(prices) for instances in _instances(request, specs)]
    prices_of_all = [price for price in each if price is not None]
    return sum(prices_of_all) if len(prices_of_all) == len(each) else None


def price_rows(session: Session, job_ids: Collection[str]) -> dict[str, JobPrice]:
    """Returns the recorded prices of some jobs by job; jobs without one are missing."""
    rows = session.scalars(select(JobPrice).where(JobPrice.job_id.in_(job_ids)))
    return {row.job_id: row for row in rows}


def cost_of(job: Job, price: JobPrice) -> JobCost:
    """Returns the cost of a job, of all its attempts."""
    runs = [change for change in job.transitions if change.status == JobStatus.RUNNING]
    past_s, since = 0.0, None
    for run in runs:
        # The executor knows the start of the last attempt, and the end of the job, more exactly.
        start = (job.started_at or run.started_at) if run is runs[-1] else run.started_at
        ends = [end for end in (run.ended_at, job.ended_at) if end is not None]
        if ends:
            past_s += max(0.0, min(ends) - start)
        else:
            since = start
    return JobCost(price.per_hour, price.currency, past_s, since)


def _instances(request: TrainingJobRequest, specs: Collection[JobSpec]) -> Iterator[_Instances]:
    """Yields the instances of each role."""
    compute = request.compute_resource
    spots = [_spot_of(spec) for spec in specs if spec.pod_count != 0] or [_spot_of(compute)]
    if not request.roles:
        yield _Instances(request.instance_count, compute.ecs_spec, compute.instance_spec, *spots[0])
    for number, role in enumerate(request.roles or []):
        # `role_requests` gives a role with resources of its own the type of the job, too.
        of = compute if role.ecs_spec is None and role.instance_spec is None else role
        yield _Instances(role.count, of.ecs_spec, of.instance_spec, *spots[min(number, len(spots) - 1)])


def _spot_of(of: ComputeResource | JobSpec) -> tuple[bool, float | None]:
    spot = of.spot_spec
    limit = spot.spot_discount_limit if spot and spot.spot_strategy == _LIMITED else None
    return bool(of.use_spot_instance or spot), limit


def _amount(text: str | None) -> float:
    """Returns a requested amount; earlier releases accepted any string, which counts as unset."""
    try:
        amount = float(text or 0)
    except ValueError:
        return 0.0
    return amount if 0 <= amount < math.inf else 0.0
