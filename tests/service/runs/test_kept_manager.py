"""What runs cost a service when no client looks at them, or nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._data.run.watch.manager import RunManager
from pai_sdk._data.run.watch.scan import LocalRunFolders
from pai_sdk._service.services.runs import on_demand_manager as kept_manager
from pai_sdk._service.services.runs.on_demand_manager import OnDemandManager
from tests.service.fakes import ScriptedExecutor
from tests.service.runs.event_files import write_points
from tests.service.services import job_body
from tests.support.waiting import until


def test_the_folders_of_jobs_that_have_not_started_are_not_looked_at(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: set[str] = set()
    scan = LocalRunFolders.scan

    def noted(folders: LocalRunFolders, **options: Any) -> Any:
        if Path(folders.store.root).is_relative_to(tmp_path):  # there may be another service in this process
            scanned.add(str(folders.store.root))
        return scan(folders, **options)

    monkeypatch.setattr(LocalRunFolders, "scan", noted)
    executor = ScriptedExecutor()
    with start(executor, slots=1) as client:
        first, second, *_ = ids = [client.create(job_body()) for _ in range(5)]
        client.until(first, "Running")
        folders = {one: client.info.data_dir / "jobs" / one / "ml" / "output" / "tensorboard" for one in ids}
        write_points(folders[first], {"loss": [1.0]})
        until(lambda: client.find(f"/runs/{first}").get("tags"))
        assert client.get("/runs")["total"] == 5
        assert scanned == {str(folders[first])}
        executor.succeed(client.info.data_dir / "jobs" / first)
        client.until(second, "Running")
        write_points(folders[second], {"loss": [1.0]})
        until(lambda: client.find(f"/runs/{second}").get("tags"))
        assert scanned == {str(folders[one]) for one in ids[:2]}


def test_what_nobody_asks_for_is_looked_at_rarely_and_fresh_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[float] = []

    def records() -> list[Any]:
        passes.append(time.monotonic())
        return []

    kept = OnDemandManager(
        lambda: RunManager(records=records, refresh_s=0.02).start(),
        idle_s=3600.0,
        quiet_s=0.2,
        check_interval_s=0.01,
    )
    try:
        manager = kept.get()
        until(lambda: len(passes) > 3)
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 600.0, time=time.time, sleep=time.sleep)
        monkeypatch.setattr(kept_manager, "time", later)
        until(lambda: manager.refresh_s == 60.0)
        time.sleep(0.05)
        known = len(passes)
        time.sleep(0.1)
        assert len(passes) <= known + 1
        known = len(passes)
        assert kept.get() is manager
        assert len(passes) > known
    finally:
        monkeypatch.undo()
        kept.close()


def test_a_manager_that_is_not_asked_for_is_closed() -> None:
    made: list[RunManager] = []

    def make() -> RunManager:
        made.append(RunManager(records=list, refresh_s=0.02).start())
        return made[-1]

    kept = OnDemandManager(make, idle_s=0.05)
    first = kept.get()
    until(lambda: first._poller.is_closed)
    assert kept.get() is not first
    kept.close()
