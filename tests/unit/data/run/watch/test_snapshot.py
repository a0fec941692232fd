"""Snapshots of the runs of a manager, and subscriptions to their changes."""

from __future__ import annotations

import threading

import pytest

from pai_sdk._data.run.watch.records import Change, RunBrief
from pai_sdk._data.run.watch.snapshot import RunSnapshots, Subscription
from tests.support.waiting import until


def brief(run_id: str, version: int) -> RunBrief:
    return RunBrief(run_id, version=version)


@pytest.fixture
def snapshots() -> RunSnapshots:
    return RunSnapshots()


def test_a_snapshot_does_not_change(snapshots: RunSnapshots) -> None:
    snapshots.publish(["a"], brief)
    before = snapshots.now
    snapshots.publish(["b"], brief, removed=["a"])
    assert (before.version, set(before.briefs)) == (1, {"a"})
    assert (snapshots.now.version, set(snapshots.now.briefs)) == (2, {"b"})


def test_nothing_changed_is_no_version(snapshots: RunSnapshots) -> None:
    snapshots.publish([], brief, removed=["unknown"])
    snapshots.publish(["a"], lambda run_id, version: None)
    assert snapshots.now.version == 0


def test_a_slow_subscriber_gets_all_changes_in_one(snapshots: RunSnapshots) -> None:
    with Subscription(snapshots) as changes:
        for _ in range(100):
            snapshots.publish(["a", "b"], brief)
        snapshots.publish(["c"], brief, removed=["a"])
        assert changes.get(timeout_s=0) == Change(("b", "c"), 101, ("a",))
        assert changes.get(timeout_s=0) is None


def test_a_subscriber_goes_on_from_its_version(snapshots: RunSnapshots) -> None:
    snapshots.publish(["a"], brief)
    snapshots.publish(["b"], brief)
    assert Subscription(snapshots, since=1).get(0) == Change(("b",), 2)
    assert Subscription(snapshots, since=2).get(0) is None
    # What was removed and is there again is not removed.
    snapshots.publish([], brief, removed=["a"])
    snapshots.publish(["a"], brief)
    assert Subscription(snapshots, since=2).get(0) == Change(("a",), 4)


def test_a_version_that_is_not_known_gives_all_runs() -> None:
    snapshots = RunSnapshots(max_removals=3)
    snapshots.publish(["a"], brief)
    of_another = Subscription(snapshots, since=500).get(0)
    assert of_another == Change(("a",), 1, resync=True)
    snapshots.publish(["b", "c", "d", "e", "f"], brief)
    for run_id in "bcdef":
        snapshots.publish([], brief, removed=[run_id])
    change = Subscription(snapshots, since=2).get(0)
    assert change == Change(("a",), 7, resync=True)
    assert Subscription(snapshots, since=5).get(0) == Change((), 7, ("e", "f"))


def test_a_subscriber_waits_until_it_or_the_manager_is_closed(snapshots: RunSnapshots) -> None:
    seen: list[Change] = []
    subscription = Subscription(snapshots)
    waiting = threading.Thread(target=lambda: seen.extend(subscription), daemon=True)
    waiting.start()
    snapshots.publish(["a"], brief)
    until(lambda: seen)
    subscription.close()
    waiting.join(30)
    assert not waiting.is_alive()
    other = threading.Thread(target=lambda: Subscription(snapshots).get(), daemon=True)
    other.start()
    snapshots.close()
    other.join(30)
    assert not other.is_alive()
