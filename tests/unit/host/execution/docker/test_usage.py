"""What the containers of an instance use, from the statistics of the engine."""

from __future__ import annotations

import pytest

from pai_sdk._host.execution.docker.usage import _usage


@pytest.mark.parametrize(
    "stats", [{}, {"cpu_stats": None, "memory_stats": {}}, {"precpu_stats": {"cpu_usage": None}}]
)
def test_an_engine_that_says_little(stats: dict[str, object]) -> None:
    usage = _usage("local-1-master-0", stats)
    assert usage == ("local-1-master-0", None, None, None, None, None)


def test_memory_is_what_cannot_be_taken_away() -> None:
    usage = _usage("one", {"memory_stats": {"usage": 96, "limit": 400, "stats": {"inactive_file": 16}}})
    assert (usage.memory_bytes, usage.memory_percent) == (80, 20.0)


def test_processor_time_is_in_percent_of_the_machine() -> None:
    stats = {
        "cpu_stats": {"cpu_usage": {"total_usage": 300}, "system_cpu_usage": 2000},
        "precpu_stats": {"cpu_usage": {"total_usage": 100}, "system_cpu_usage": 1000},
        "memory_stats": {"usage": 96, "limit": 400, "stats": {"inactive_file": 16}},
    }
    usage = _usage("local-1-master-0", stats)
    assert (usage.cpu_percent, usage.memory_percent, usage.memory_bytes) == (20.0, 20.0, 80)
