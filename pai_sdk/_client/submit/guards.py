"""Guards of a plan: its maximum cost, and alternative instance types for a lack of capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pai_sdk._client.backend.specs import backend_for_type
from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.prices import PriceList
from pai_sdk._data.notify.targets import Notification, Target, target_of
from pai_sdk._wire.pai.compute import ComputeResource, SpotSpec, SpotStrategy
from pai_sdk._wire.pai.request import TrainingJobRequest

ON_DEMAND = "on-demand"
"""Among the alternatives of a job: its own instance type, without spot terms."""


def fallbacks(
    alternatives: Sequence[str | Mapping[str, Any]] | None, compute: ComputeResource | None, problems: Problems
) -> tuple[ComputeResource, ...]:
    """Returns the alternatives of a job's resources, in their order."""
    if not alternatives or compute is None:
        return ()
    if compute.ecs_spec is None or backend_for_type(compute.ecs_spec).is_local:
        problems.add("fallback", "works only with public instances", "give an instance_type of the cloud")
        return ()
    resources = []
    for number, each in enumerate(alternatives):
        where = f"fallback[{number}]"
        if isinstance(each, str):
            # An instance type keeps the spot terms of the job.
            each = {"spot_spec": None} if each == ON_DEMAND else {"instance_type": each}
        if not isinstance(each, Mapping) or not each or {*each} - {"instance_type", "spot_spec"}:
            hint = "give an instance type, 'on-demand', or a dict with instance_type, spot_spec or both"
            problems.add(where, "is not an alternative", hint)
            continue
        instance_type = each.get("instance_type", compute.ecs_spec)
        if (
            not isinstance(instance_type, str)
            or not instance_type.strip()
            or backend_for_type(instance_type).is_local
        ):
            problems.add(where, f"{instance_type!r} is not an instance type of the cloud")
            continue
        with problems.under(where):
            spot = each.get("spot_spec", compute.spot_spec)
            spot = None if spot is None else SpotSpec.model_validate(spot)
            changes = {"ecs_spec": instance_type, "spot_spec": spot, "use_spot_instance": True if spot else None}
            resources.append(compute.model_copy(update=changes))
    return tuple(resources)


def targets(notify: Sequence[Notification | str] | None, problems: Problems) -> tuple[Target, ...]:
    """Returns the targets of messages about a job, without those that are classes of the user."""
    values: list[Target] = []
    for number, each in enumerate(notify or ()):
        with problems.under(f"notify[{number}]"):
            if isinstance(each, Target) or not isinstance(each, Notification):
                values.append(target_of(each, ""))
    return tuple(values)


def check_cost(
    max_cost: float | None,
    prices: Mapping[str, float],
    request: TrainingJobRequest,
    alternatives: Sequence[ComputeResource],
    problems: Problems,
) -> None:
    """Adds a problem if a job, or one of its alternatives, may cost more than `max_cost`."""
    if max_cost is None:
        return
    if isinstance(max_cost, bool) or not isinstance(max_cost, int | float) or not max_cost > 0:
        problems.add("max_cost", f"{max_cost!r} is not an amount", "give a number above 0")
        return
    if wrong := [name for name, price in prices.items() if not _is_price(price)]:
        problems.add(f"prices[{wrong[0]!r}]", "is not a price", "give a number, 0 or more")
        return
    plans = [_paid_parts(request, each) for each in (request.compute_resource, *alternatives)]
    paid = [parts for parts in plans if parts]
    scheduler = request.scheduler
    seconds = scheduler.max_running_time_in_seconds if scheduler else None
    if paid and not seconds:
        problems.add("max_cost", "needs a time limit", "give max_run_time, in seconds")
        return
    for parts in paid:
        # Prices are per instance and hour. Without a `TYPE spot`, a spot instance counts with its price limit, or
        # in full.
        amounts = [(part, _price(part, prices)) for part in parts]
        for name in dict.fromkeys(part.ecs_spec for part, price in amounts if price is None):
            hint = f"give prices={{{name!r}: …}}, per instance and hour, or 'prices' in ~/.pai/config.json"
            problems.add("max_cost", f"no price of {name} is known", hint)
        if any(price is None for _, price in amounts):
            continue
        kind = " and ".join(dict.fromkeys(f"{part.ecs_spec}{' spot' if part.spot_spec else ''}" for part in parts))
        count = sum(map(_count, parts))
        cost = sum((price or 0) * (seconds or 0) / 3600 * _count(part) for part, price in amounts)
        if not cost <= max_cost:  # NaN is no cost that is allowed
            message = f"{count} × {kind} for {seconds} s may cost {cost:.2f}, which is more than {max_cost:g}"
            problems.add("max_cost", message, "lower max_run_time, or raise max_cost")


def _paid_parts(request: TrainingJobRequest, resource: ComputeResource) -> list[ComputeResource]:
    """Returns the paid resources of each role, if those of the job are `resource`."""
    roles = request.model_copy(update={"compute_resource": resource}).role_requests
    return [role.compute_resource for role in roles if _is_paid(role.compute_resource)]


def _count(resource: ComputeResource) -> int:
    return resource.ecs_count or resource.instance_count or 1


def _is_price(price: object) -> bool:
    return isinstance(price, int | float) and not isinstance(price, bool) and price >= 0


def _is_paid(resource: ComputeResource) -> bool:
    return resource.ecs_spec is not None and not backend_for_type(resource.ecs_spec).is_local


def _price(resource: ComputeResource, prices: Mapping[str, float]) -> float | None:
    spot = resource.spot_spec
    is_limited = spot is not None and spot.spot_strategy == SpotStrategy.SpotWithPriceLimit
    limit = spot.spot_discount_limit if spot is not None and is_limited else None
    return PriceList(instance_types=prices).of_type(
        resource.ecs_spec or "", is_spot=spot is not None, spot_limit=limit
    )
