"""`session.runs`: the answers of a manager, over HTTP."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pai_sdk._service.settings import ForeignCloud
from pai_sdk.errors import InvalidInputError, InvalidRequestError, NotFoundError
from tests.service.fakes import ScriptedExecutor
from tests.service.runs.event_files import write_points
from tests.service.services import job_body, session_on
from tests.support.messages import refused
from tests.support.waiting import until


def test_runs_are_listed_read_and_compared(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor()) as client:
        runs = session_on(client.info).runs
        job_id = client.create(job_body(HyperParameters=[{"Name": "lr", "Value": "0.1"}]))
        client.until(job_id, "Running")
        folder = client.info.data_dir / "jobs" / job_id / "ml" / "output" / "tensorboard"
        folder.mkdir(parents=True)
        values = [2.0, math.nan, math.inf, -math.inf]
        write_points(folder, {"loss": values, "wide": [float(n) for n in range(1000)]})
        until(lambda: [brief.tags["wide"].count for brief in runs.list().runs if "wide" in brief.tags] == [1000])
        page = runs.list(f"id={job_id}", tags=["loss"])
        (brief,) = page.runs
        loss = brief.tags["loss"]
        assert (page.total, page.next, page.all, page.statuses) == (1, None, 1, {"Running": 1})
        assert (brief.id, brief.status, brief.hparams) == (job_id, "Running", {"lr": "0.1"})
        assert loss.last is not None
        assert (loss.count, loss.min, loss.last.value, loss.last.step) == (4, 2.0, -math.inf, 3)
        series = runs.scalars(job_id, "loss")
        np.testing.assert_array_equal(series.value, values)
        assert series.step.tolist() == [0, 1, 2, 3]
        found = runs.compare([job_id], "wide", buckets=10)
        (curve,) = found.curves
        assert (found.is_exact, found.points, curve.name) == (False, 1000, job_id)
        assert curve.high is not None
        assert (np.nanmax(curve.high), curve.count.sum(), len(curve.x)) == (999.0, 1000, len(found.edges) - 1)
        (of_job,) = runs.compare([session_on(client.info).get_job(job_id)], "loss").curves
        assert of_job.name == job_id
        raw = runs.compare("", "loss")
        np.testing.assert_array_equal(raw.curves[0].value, values)
        assert "<svg" in raw.plot().svg
        with pytest.raises(NotFoundError):
            runs.scalars(job_id, "nothing")
        with refused(InvalidRequestError):
            runs.list("loss<<")


def test_jobs_are_annotated(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor()) as client:
        session = session_on(client.info)
        job_id = client.create(job_body())
        found = session.runs.annotate(job_id, add_tags=["best", "paper"], note="warm-up", star=True)
        assert (found.star, found.tags, found.note, found.archived) == (True, ["best", "paper"], "warm-up", False)
        found = session.runs.annotate(session.get_job(job_id), remove_tags=["best"], archived=True)
        assert (found.star, found.tags, found.note, found.archived) == (True, ["paper"], "warm-up", True)
        assert session.runs.annotate(job_id).tags == ["paper"]
        until(lambda: session.runs.list("tags=paper archived=true").total == 1)
        (brief,) = session.runs.list(f"id={job_id}").runs
        assert (brief.annotations.tags, brief.annotations.note) == (("paper",), "warm-up")
        until(lambda: session.runs.list().total == 0, "the archive")
        with pytest.raises(InvalidRequestError):
            session.runs.annotate(job_id, add_tags=["x" * 65])
        with pytest.raises(NotFoundError):
            session.runs.annotate("train0", star=True)


def test_a_service_without_the_offer_is_not_asked(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), foreign=ForeignCloud()) as client:
        runs = session_on(client.info).runs
        assert not runs.is_offered()
        with refused(InvalidInputError):
            runs.list()
