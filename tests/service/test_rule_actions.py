"""The actions of rules, when what comes before them takes long or fails."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event, insert, select

from pai_sdk._data.rules.codec import WatchConfig
from pai_sdk._data.rules.rules import NoProgress
from pai_sdk._data.rules.signals import Finding
from pai_sdk._service.background.watch.rule_watcher import RuleWatcher
from pai_sdk._service.services.jobs.changes import Changes
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.queueing.submission import NewJob
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Job
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.status import JobStatus
from tests.service.services import job_body


class Place:
    """A job with one finding per sample, and what the rules do with it."""

    def __init__(self) -> None:
        self.attempt = 1
        self.events_fail = False
        self.ended: list[str] = []
        collector = SimpleNamespace(job_ids=[], usage=SimpleNamespace(uses=lambda job_id: {}))
        self.watcher = RuleWatcher(
            self,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            collector,  # type: ignore[arg-type]
            self,
            config=WatchConfig(),
            interval_s=1.0,
        )
        rule = NoProgress(action="stop")
        finding = Finding("NoProgress", "raised", "It hangs.", "stop", None)
        evaluator = SimpleNamespace(observe=lambda sample: [finding], needs_stacks=False, conditions=[])
        signals = SimpleNamespace(sample=lambda *_: None)
        self.watched: Any = SimpleNamespace(
            job_id="train1",
            attempt=1,
            request=None,
            rules={rule.code: rule},
            evaluator=evaluator,
            signals=signals,
            stacks=None,
            unreported=[],
        )

    def observe(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Evaluate one sample; return the reasons for which the job was ended."""
        module = "pai_sdk._service.background.watch.rule_watcher"
        monkeypatch.setattr(f"{module}.read_markers", lambda folder: [])
        monkeypatch.setattr(f"{module}._times", lambda *_: None)
        for name in ("_save", "_save_snapshot"):
            monkeypatch.setattr(self.watcher, name, lambda *_: None)
        self.watched.debug_folder = None
        self.watcher._watched["train1"] = self.watched
        row: Any = SimpleNamespace(id="train1", attempt=1, stop_requested=False, instances=[])
        self.watcher._observe(row, [])
        return self.ended

    # ---- the jobs, and what ends them ----

    def get(self, job_id: str) -> Any:
        return SimpleNamespace(attempt=self.attempt)

    def add_finding(self, job_id: str, text: str, **_: Any) -> None:
        if self.events_fail:
            raise OSError(28, "No space left on device")

    def end_job(self, job_id: str, *, reason_code: str, reason_message: str) -> None:
        self.ended.append(reason_code)


def test_an_action_follows_an_event_that_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    place.events_fail = True
    assert place.observe(monkeypatch) == ["NoProgress"]


def test_another_attempt_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    assert place.observe(monkeypatch) == ["NoProgress"]
    place.attempt = 2  # while the stacks were read
    assert place.observe(monkeypatch) == ["NoProgress"]


def test_more_running_jobs_than_parameters_of_a_statement(tmp_path: Path) -> None:
    database = Database.in_file(tmp_path / "jobs.db")
    with closing(database):
        jobs = Jobs(database, Changes())
        first = jobs.create(NewJob(TrainingJobRequest.model_validate(job_body()), "1"))
        jobs.move(first, JobStatus.RUNNING, text="started")
        with database.write() as session:
            (row,) = session.execute(select(Job.__table__)).mappings()
            copies = [
                {**row, "id": f"train{number}", "number": row["number"] + number} for number in range(1, 1500)
            ]
            session.execute(insert(Job), copies)
        ids = [first, *(copy["id"] for copy in copies)]

        @event.listens_for(database.engine, "checkout")
        def limit(connection: Any, *_: object) -> None:
            if sys.version_info >= (3, 11):  # as SQLite before 3.32
                connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)

        collector: Any = SimpleNamespace(job_ids=ids)
        nothing: Any = None
        watcher = RuleWatcher(jobs, nothing, nothing, collector, nothing, config=WatchConfig(), interval_s=1.0)
        rows, _ = watcher._running()
        assert sorted(row.id for row in rows) == sorted(ids)
