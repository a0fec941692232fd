"""Which source the files of a run belong to, and which of their points count."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pai_sdk._data.run.events.attempts import Attempt, Replacement, oldest_first, replacements
from pai_sdk._data.run.events.sources import HostFiles, is_instance, lanes, source_order
from pai_sdk._data.run.events.writer import event_file_source


@pytest.mark.parametrize(("name", "expected"), [("train129f212o89d-worker-0", True), ("spot-a", False)])
def test_instances_have_a_role_and_a_number(name: str, expected: bool) -> None:
    assert is_instance(name) is expected


def test_sources_are_sorted_by_role_and_number() -> None:
    names = ["t-worker-10", "t-worker-9", "t-master-0", "spot-a"]
    assert sorted(names, key=source_order) == ["t-master-0", "t-worker-9", "t-worker-10", "spot-a"]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("rank-1/events.out.tfevents.1790000000.train-1-worker-0.17.123", ("train-1-worker-0", 1790000000)),
        ("other/events.out.tfevents.1790000000.host.17.0", None),
    ],
)
def test_a_file_of_report_names_its_instance_and_its_start(path: str, source: tuple[str, int] | None) -> None:
    assert event_file_source(path) == source


def test_a_machine_is_named_only_beside_another_one() -> None:
    def file(host: str, number: int) -> HostFiles:
        return HostFiles(-1, host, number, (number, number + 9), (number, number + 9))

    assert lanes([file("a", 0), file("a", 1), file("b", 2)]) == [(-1, ""), (-1, ""), (-1, "b")]


def test_steps_overrule_a_clock_that_is_behind() -> None:
    first, second = Attempt(1790000600, None, range(60)), Attempt(1790000000, None, range(50, 100))
    assert oldest_first([first, second]) == [0, 1]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([range(60), range(50, 100)], Replacement(limit=50, replaced_by=())),
        ([range(120), [50]], Replacement(limit=None, replaced_by=(1,))),
    ],
)
def test_a_newer_file_replaces_later_steps_or_equal_ones(
    steps: Sequence[Sequence[int]], expected: Replacement
) -> None:
    assert replacements(steps)[0] == expected
