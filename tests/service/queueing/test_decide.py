"""Whose job begins next: by quotas, by share, by the order of creation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._host.execution.base import ClusterCapacity
from pai_sdk._service.services.jobs.host_resources import Capacity, Need
from pai_sdk._service.services.jobs.queueing.fair_share import HALF_LIFE_S, Allocation, Use, share_of
from pai_sdk._service.services.jobs.queueing.queue import Decision, Head, decide
from pai_sdk._service.services.jobs.queueing.quota_checks import Quota, missing_in_quota

CAPACITY = Capacity(slots=8, cpus=16.0, gpus=4)
NOW = 1_000_000.0


def head(owner: str, number: int = 1, need: Need | None = None) -> Head:
    return Head(f"{owner}-{number}", number, owner, need or Need(1, cpus=1))


def begun(owner: str, need: Need | None = None, *, since: float = NOW) -> Allocation:
    return Allocation(owner, need or Need(1, cpus=1), since)


def decided(
    *heads: Head,
    held: tuple[Allocation, ...] = (),
    uses: dict[str, Use] | None = None,
    quotas: dict[str, Quota] | None = None,
) -> Decision:
    return decide(heads, held, uses or {}, quotas or {}, lambda: CAPACITY, NOW)


def next_owner(decision: Decision) -> str:
    assert decision.next is not None
    return decision.next.owner


def test_of_equal_shares_the_oldest_job_is_next() -> None:
    assert next_owner(decided(head("bob", 2), head("alice", 1))) == "alice"


def test_the_user_who_holds_less_is_next() -> None:
    assert next_owner(decided(head("alice", 1), head("bob", 2), held=(begun("alice"),))) == "bob"


def test_the_user_who_has_used_less_is_next() -> None:
    uses = {"alice": Use(1, 1, 0, NOW), "bob": Use(0.5, 0.5, 0, NOW)}
    assert next_owner(decided(head("alice", 1), head("bob", 2), uses=uses)) == "bob"


def test_use_of_long_ago_counts_less() -> None:
    uses = {"alice": Use(1, 1, 0, NOW - 3 * HALF_LIFE_S), "bob": Use(0.5, 0.5, 0, NOW)}
    assert next_owner(decided(head("alice", 2), head("bob", 1), uses=uses)) == "alice"


def test_the_scarcest_resource_counts() -> None:
    """One of 4 GPUs is more than 3 of 16 CPUs."""
    held = (begun("alice", Need(1, gpus=1)), begun("bob", Need(1, cpus=3)))
    assert next_owner(decided(head("alice", 1), head("bob", 2), held=held)) == "bob"


def test_a_large_job_whose_turn_it_is_keeps_all_others_waiting() -> None:
    large = head("alice", 2, Need(8))
    decision = decided(large, head("bob", 1), held=(begun("bob"),))
    assert decision.next == large
    assert decision.lacking == ["8 instances (7 of 8 are free)"]


def test_a_user_at_their_quota_keeps_nobody_waiting() -> None:
    quotas = {"alice": Quota(running=1)}
    uses = {"bob": Use(5, 5, 0, NOW)}
    decision = decided(head("alice", 1), head("bob", 2), held=(begun("alice"),), uses=uses, quotas=quotas)
    assert next_owner(decision) == "bob"
    assert not decision.lacking
    assert decision.at_quota == [(head("alice", 1), ["1 running job (0 of 1 are free)"])]


def test_if_all_are_at_their_quotas_nothing_begins_and_the_capacity_is_not_asked_for() -> None:
    def unused() -> Capacity:
        raise AssertionError

    quotas = {"alice": Quota(gpus=1)}
    held = [begun("alice", Need(1, gpus=1))]
    decision = decide([head("alice", 1, Need(1, gpus=1))], held, {}, quotas, unused, NOW)
    assert decision.next is None
    assert len(decision.at_quota) == 1


def test_a_job_without_gpus_does_not_wait_for_the_quota_of_gpus() -> None:
    quotas = {"alice": Quota(gpus=1)}
    held = (begun("alice", Need(1, gpus=2)),)  # it began before the quota was lowered
    assert next_owner(decided(head("alice"), held=held, quotas=quotas)) == "alice"


def test_a_cluster_is_the_total_where_the_service_has_no_limit() -> None:
    cluster = ClusterCapacity(cpus=8, gpus=0, memory_bytes=1 << 30, nodes=1)
    capacity = Capacity(slots=1000, cluster=cluster)
    assert share_of(Use(), [begun("alice", Need(1, cpus=2))], capacity, NOW) == pytest.approx(0.25)


def test_cpus_that_a_cluster_gives_to_jobs_without_a_spec_are_part_of_the_share() -> None:
    cluster = ClusterCapacity(cpus=8, gpus=0, memory_bytes=0, nodes=1, cpus_per_instance=1)
    held = [begun("alice", Need(2, unsized_instances=2))]
    assert share_of(Use(), held, Capacity(slots=1000, cluster=cluster), NOW) == pytest.approx(0.25)


def test_the_average_is_the_same_if_a_job_was_split_in_two() -> None:
    whole = Use().with_use(Need(2, cpus=4, gpus=1), start=0, end=7200)
    parts = Use().with_use(Need(2, cpus=4, gpus=1), start=0, end=3600)
    parts = parts.with_use(Need(2, cpus=4, gpus=1), start=3600, end=7200)
    assert (parts.instances, parts.cpus, parts.gpus) == pytest.approx((whole.instances, whole.cpus, whole.gpus))


def test_a_day_of_use_counts_half_and_a_day_later_a_quarter() -> None:
    use = Use().with_use(Need(1, cpus=8), start=0, end=HALF_LIFE_S)
    assert (use.cpus, use.decayed(2 * HALF_LIFE_S).cpus) == (4.0, 2.0)


def test_a_quota_counts_the_cpus_of_the_running_jobs() -> None:
    missing = missing_in_quota(Quota(cpus=8, running=4), Need(1, cpus=4), [Need(1, cpus=6)])
    assert list(missing) == ["4 CPUs (2 of 8 are free)"]


def test_a_clock_that_was_set_back_charges_nothing_twice() -> None:
    use = Use(1, 1, 1, NOW)
    assert use.decayed(NOW - 100) == use
    assert use.with_use(Need(1), start=NOW, end=NOW - 100) == use


_needs = st.builds(Need, st.integers(1, 4), st.integers(0, 8), st.just(0), st.integers(0, 2))
_owners = st.sampled_from("abcdef")
_quotas = st.builds(
    Quota, st.none() | st.integers(0, 16), st.none() | st.integers(0, 4), st.none() | st.integers(0, 3)
)


@given(
    heads=st.dictionaries(_owners, _needs, min_size=1),
    held=st.lists(st.builds(Allocation, _owners, _needs, st.floats(0, NOW)), max_size=4),
    quotas=st.dictionaries(_owners, _quotas),
)
def test_each_head_is_next_or_behind_or_at_its_quota(
    heads: dict[str, Need], held: list[Allocation], quotas: dict[str, Quota]
) -> None:
    line = [Head(owner, number, owner, need) for number, (owner, need) in enumerate(heads.items())]
    decision = decide(line, held, {}, quotas, lambda: CAPACITY, NOW)
    at_quota = {each.owner for each, _ in decision.at_quota}
    for each in line:
        own = [one.need for one in held if one.owner == each.owner]
        is_full = any(missing_in_quota(quotas.get(each.owner, Quota()), each.need, own))
        assert is_full == (each.owner in at_quota)
    assert (decision.next is None) == (len(at_quota) == len(line))
    if decision.next is not None:
        assert decision.next.owner not in at_quota
        own_share = _share(decision.next.owner, held)
        assert own_share == min(_share(each.owner, held) for each in line if each.owner not in at_quota)
        fits = not list(CAPACITY.lacks(decision.next.need, [one.need for one in held]))
        assert fits == (not decision.lacking)


def _share(owner: str, held: list[Allocation]) -> float:
    return share_of(Use(), [one for one in held if one.owner == owner], CAPACITY, NOW)
