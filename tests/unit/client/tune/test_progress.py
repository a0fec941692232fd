"""The live table of a search: trials, their values and reasons, at the width of an old terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from pai_sdk._client.display.live_table import JobsDisplay, NotebookJobs, TerminalJobs
from pai_sdk._client.tune import Objective, Trial, TrialList
from pai_sdk._client.tune.progress import TrialsDisplay, trials_layout
from pai_sdk._wire.pai.record import JobRecord

LOSS = [Objective("loss", "minimize")]
PARAMS = {f"a_long_name_of_a_hyperparameter_{number}": 0.123456789 for number in range(4)}
FUNCTIONS = [
    Trial(0, "complete", PARAMS, {"loss": 0.25}, seconds=65),
    Trial(1, "pruned", PARAMS, {"loss": 1.5}, reason="pruned at step 4", seconds=3),
    Trial(2, "failed", PARAMS, reason="ValueError: no data (train.py:12)", seconds=1),
    Trial(3, "running", PARAMS),
]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(inner: JobsDisplay, trials: Sequence[Trial], records: Sequence[JobRecord] = ()) -> None:
    study: Any = SimpleNamespace(uri="file:///study/", trials=lambda: TrialList(trials, LOSS), objectives=LOSS)
    display = TrialsDisplay(study, inner)
    display.changed(records)
    display.ended()


def lines(trials: Sequence[Trial], records: Sequence[JobRecord] = (), *, has_jobs: bool) -> list[str]:
    stream = io.StringIO()
    show(TerminalJobs(stream, layout=trials_layout(LOSS, has_jobs=has_jobs)), trials, records)
    return [line for line in stream.getvalue().splitlines() if not line.startswith("!")]


def test_a_terminal_of_80_columns_has_values_and_reasons(monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = Screen()
    show(TerminalJobs(stream, layout=trials_layout(LOSS, has_jobs=False)), FUNCTIONS)
    text = stream.getvalue()
    rows = {
        number: next(line for line in text.splitlines() if f"  {number}  " in line)[:80] for number in range(4)
    }
    assert "complete  0.25  1m05s" in rows[0]
    assert "pruned at step 4" in rows[1]
    assert "failed" in rows[2]
    assert "ValueError: no data (train.py:12)" in rows[2]
    assert "running" in rows[3]
    assert "4 trials: 1 complete, 1 pruned, 1 failed, 1 running" in text
    for word in ("Terminated", "Succeed", "job"):
        assert word not in text


def test_in_a_file_the_end_of_each_trial_is_a_line() -> None:
    shown = lines(FUNCTIONS, has_jobs=False)
    assert [line.split(" a_long")[0].rstrip(" ·") for line in shown] == [
        "✔ 1/4 0 complete 0.25 1m05s",
        "■ 2/4 1 pruned 1.5 3s pruned at step 4",
        "✘ 3/4 2 failed 1s ValueError: no data (train.py:12)",
        "4 trials: 1 complete, 1 pruned, 1 failed, 1 running",
    ]


def test_a_trial_that_is_a_job_has_its_id_its_status_and_its_last_value() -> None:
    trials = [
        Trial(0, "running", {"lr": 0.5}, job_id="train0"),
        Trial(1, "running", {"lr": 0.5}, job_id="train1"),
        Trial(2, "pruned", {"lr": 0.5}, {"loss": 2.0}, job_id="train2", reason="pruned at step 1"),
    ]
    records = [
        JobRecord.model_validate({"TrainingJobId": "train0", "Status": "Queuing"}),
        JobRecord.model_validate(
            {"TrainingJobId": "train1", "Status": "Running", "LatestMetrics": [{"Name": "loss", "Value": 0.125}]}
        ),
        JobRecord.model_validate({"TrainingJobId": "train2", "Status": "Terminated"}),
    ]
    stream = Screen()
    show(TerminalJobs(stream, layout=trials_layout(LOSS, has_jobs=True)), trials, records)
    text = " ".join(stream.getvalue().split())
    assert "0 queuing lr=0.5 train0" in text
    assert "1 running 0.125 lr=0.5 train1" in text
    assert "2 pruned 2 pruned at step 1 · lr=0.5 train2" in text


def test_a_notebook_has_the_same_columns() -> None:
    display = NotebookJobs(layout=trials_layout(LOSS, has_jobs=False))
    display._draw = lambda: None  # type: ignore[method-assign] # there is no notebook here
    show(display, [*FUNCTIONS, Trial(4, "failed", {"x": "<b>"}, reason="<script>")])
    html = display.html()
    assert "5 trials: 2 failed, 1 complete, 1 pruned, 1 running" in html
    assert "ValueError: no data (train.py:12)" in html
    assert "<script>" not in html
    assert "Terminated" not in html


def test_the_list_of_trials_has_long_reasons_with_their_end() -> None:
    reason = f"RuntimeError: {'the size of the tensor ' * 4}\nmust match (train.py:12)"
    assert "tensor must match (train.py:12)" in repr(TrialList([Trial(0, "failed", {}, reason=reason)], LOSS))
    longer = f"RuntimeError: {'x' * 1000} (train.py:12)"
    text = repr(TrialList([Trial(0, "failed", {}, reason=longer)], LOSS))
    assert text.endswith("x (train.py:12)")
    assert len(text.splitlines()[-1]) < 300
