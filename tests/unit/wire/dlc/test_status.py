"""What statuses of DLC mean."""

from __future__ import annotations

import pytest

from pai_sdk._wire.dlc import status
from pai_sdk._wire.pai.status import STATUSES as PAI_STATUSES

IN_ORDER = [
    "Creating",
    "Queuing",
    "Bidding",
    "EnvPreparing",
    "SanityChecking",
    "Running",
    "Restarting",
    "Stopping",
    "SucceededReserving",
    "FailedReserving",
    "Succeeded",
    "Failed",
    "Stopped",
]


def test_all_statuses_are_there() -> None:
    assert list(status.STATUSES) == IN_ORDER


@pytest.mark.parametrize("name", IN_ORDER)
def test_each_means_a_status_of_pai(name: str) -> None:
    meaning = status.pai_status(name)
    assert meaning in PAI_STATUSES
    assert meaning.is_terminal is status.has_command_ended(name)
    assert name in status.statuses_for(meaning)
    assert status.is_terminal(name) is (name in ("Succeeded", "Failed", "Stopped"))


@pytest.mark.parametrize("name", PAI_STATUSES)
def test_each_status_of_pai_is_one_of_dlc(name: str) -> None:
    assert status.dlc_status(name) in IN_ORDER
    assert status.pod_status(name) in status.POD_STATUSES


def test_a_way_through_dlc_and_back() -> None:
    for name in ("Creating", "Submitted", "Initializing", "Running", "Succeed", "Failed", "Terminated"):
        assert status.pai_status(status.dlc_status(name)) == name


@pytest.mark.parametrize(
    ("finished_at", "has_ended"), [(None, False), ("", False), ("2026-01-01T00:00:00Z", True)]
)
def test_unknown_statuses_are_kept(finished_at: str | None, has_ended: bool) -> None:
    meaning = status.pai_status("Evicted", finished_at=finished_at)
    assert (meaning, meaning.is_terminal, meaning.is_failure) == ("Evicted", has_ended, has_ended)
    assert status.pod_status("Evicted") == "Unknown"
    assert status.statuses_for("Evicted") == ("Evicted",)
    assert status.statuses_for("CreateFailed") == ()


def test_the_time_of_the_end_changes_no_known_status() -> None:
    assert not status.pai_status("Running", finished_at="2026-01-01T00:00:00Z").is_terminal


@pytest.mark.parametrize("code", ["JobStoppedByUser", "StoppedByUser", status.ENDED_BY_USER])
def test_stops_of_users(code: str) -> None:
    assert status.is_stopped_by_user(code)


@pytest.mark.parametrize("code", [None, "", "JobSucceeded", "StoppedByUserQuota"])
def test_other_reasons(code: str | None) -> None:
    assert not status.is_stopped_by_user(code)
