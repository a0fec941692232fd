"""Measures what the containers of a job use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pai_sdk._host.execution.docker.containers import JobContainers
from pai_sdk._host.execution.docker.engine import Engine
from pai_sdk._wire.pai.record import InstanceUsage

_MAX_STATS_THREADS = 16


def usage_of_job(engine: Engine, job_id: str) -> list[InstanceUsage]:
    """Returns what the running containers of a job use; the engine measures each for a second."""
    running = [
        container for container in JobContainers(lambda: engine).of(job_id) if container.status == "running"
    ]
    with ThreadPoolExecutor(min(_MAX_STATS_THREADS, len(running) or 1)) as pool:
        usages = pool.map(lambda each: _usage(each.name, each.stats(stream=False)), running)
        return sorted(usages, key=lambda usage: usage.instance)


def _usage(instance: str, stats: dict[str, Any]) -> InstanceUsage:
    """Returns the figures of `docker stats`, in percent of the machine's cores and of the available memory."""
    now, before = stats.get("cpu_stats") or {}, stats.get("precpu_stats") or {}
    cpu_time = _get_int(now, "cpu_usage", "total_usage") - _get_int(before, "cpu_usage", "total_usage")
    system_time = _get_int(now, "system_cpu_usage") - _get_int(before, "system_cpu_usage")
    memory = stats.get("memory_stats") or {}
    # As `docker stats` does: reclaimable page cache does not count. Its name differs between cgroup v2 and
    # v1.
    cache_bytes = _get_int(memory, "stats", "inactive_file") or _get_int(memory, "stats", "total_inactive_file")
    used_bytes, limit = max(0, _get_int(memory, "usage") - cache_bytes), _get_int(memory, "limit")
    return InstanceUsage(
        instance,
        cpu_percent=100 * cpu_time / system_time if system_time > 0 else None,
        memory_percent=100 * used_bytes / limit if limit else None,
        memory_bytes=used_bytes if memory else None,
    )


def _get_int(values: dict[str, Any], *names: str) -> int:
    value: Any = values
    for name in names:
        value = (value or {}).get(name)
    return int(value or 0)
