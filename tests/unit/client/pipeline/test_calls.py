"""Pipelines of functions: order, values, conditions, failures, what is kept from run to run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.pipeline import Pipeline, PipelineRun
from pai_sdk._client.tune import Tuner, Uniform
from pai_sdk._data.pipelines.records import RunRecords
from pai_sdk._data.storage.claims import claimed, is_claimed
from pai_sdk._data.storage.store import open_store
from pai_sdk.errors import InUseError, InvalidInputError, PipelineFailed, PipelineStopped, RunNotFoundError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, long_enough, until


class Calls:
    """Functions that note their calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __reduce__(self) -> tuple[type[Calls], tuple[()]]:
        return Calls, ()  # for the cache, a step that notes a call is still the same step

    def returning(self, name: str, value: Any = None) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            self.seen.append(name)
            return value if value is not None else given

        return call


@pytest.fixture
def calls() -> Calls:
    return Calls()


def make(tmp_path: Path, **settings: Any) -> Pipeline:
    return Pipeline("test", store=tmp_path / "store", **settings)


def statuses(run: PipelineRun) -> dict[str, str]:
    return {name: one.status for name, one in run.steps.items()}


# ---- values and order


def test_results_and_parameters_are_arguments_of_other_steps(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    size = pipeline.parameter("size", int, 2)
    first = pipeline.step(lambda n: {"list": [n, n + 1]}, name="first", arguments={"n": size})
    pipeline.step(
        lambda a, b: [a, b],
        name="second",
        arguments={"a": first.result["list"][1], "b": [size, {"x": first.result}]},
    )
    assert pipeline.run(show=False)["second"].result == [3, [2, {"x": {"list": [2, 3]}}]]
    assert pipeline.run(show=False, size=5)["second"].result[0] == 6


def test_a_step_waits_for_those_after_which_it_comes(tmp_path: Path, calls: Calls) -> None:
    pipeline = make(tmp_path)
    slow = pipeline.step(lambda: (time.sleep(0.1), calls.seen.append("slow"))[0], name="slow")
    pipeline.step(calls.returning("next"), name="next", after=slow)
    pipeline.run(show=False)
    assert calls.seen == ["slow", "next"]


def test_at_most_as_many_steps_run_at_once_as_allowed(tmp_path: Path) -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=PATIENCE_S)

    def call(n: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1
        return n

    pipeline = make(tmp_path, parallel=3)
    every = pipeline.each(list(range(12)), call, value="n")
    assert pipeline.run(show=False)[every.name].result == list(range(12))
    assert most == 3


def test_a_step_for_each_value_of_a_result(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    names = pipeline.step(lambda: ["a", "b", "c"], name="names")
    upper = pipeline.each(
        names.result, lambda name, end: name.upper() + end, value="name", name="upper", arguments={"end": "!"}
    )
    pipeline.step(lambda all: "".join(all), name="join", arguments={"all": upper.result})
    run = pipeline.run(show=False)
    assert run["join"].result == "A!B!C!"
    assert [*run.steps][:5] == ["names", "upper", "join", "upper[0]", "upper[1]"]


def test_a_step_for_each_value_of_none(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    none = pipeline.each([], lambda n: n, value="n", name="none")
    pipeline.step(lambda found: found, name="next", arguments={"found": none.result})
    assert pipeline.run(show=False)["next"].result == []


def test_a_pipeline_as_a_step_has_parameters_and_results(tmp_path: Path) -> None:
    inner = Pipeline("inner", store=tmp_path / "inner")
    number = inner.parameter("number", int)
    double = inner.step(lambda n: 2 * n, name="double", arguments={"n": number})
    inner.step(lambda n: n + 1, name="add", arguments={"n": double.result}, when=number < 10)
    outer = make(tmp_path)
    three = outer.step(lambda: 3, name="three")
    added = outer.step(inner, name="sub", arguments={"number": three.result})
    outer.step(lambda n: n, name="last", arguments={"n": added.result})
    run = outer.run(show=False)
    assert statuses(run) == dict.fromkeys(["three", "sub/double", "sub/add", "last"], "succeeded")
    assert run["last"].result == 7


# ---- conditions


def test_a_step_whose_condition_does_not_hold_is_skipped_with_those_that_need_it(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    score = pipeline.step(lambda: 0.8, name="score")
    good = (score.result > 0.9) | ~(score.result != 0.8) & (score.result < 0.5)
    deploy = pipeline.step(lambda: "deployed", name="deploy", when=good)
    pipeline.step(lambda x: x, name="needs", arguments={"x": deploy.result})
    pipeline.step(lambda: 1, name="follows", after=deploy)
    run = pipeline.run(show=False)
    assert statuses(run) == {"score": "succeeded", "deploy": "skipped", "needs": "skipped", "follows": "succeeded"}
    assert "score.result > 0.9" in run["deploy"].reason
    assert run["needs"].reason == "deploy was skipped"
    assert run.status == "succeeded"


def test_a_condition_is_not_true_or_false_while_it_is_described(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    score = pipeline.step(lambda: 0.8, name="score")
    with refused(TypeError):
        assert score.result > 0.5
    with refused(TypeError):
        list(score.result)


# ---- failures


def test_steps_that_do_not_need_a_failed_one_are_run(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    bad = pipeline.step(lambda: 1 / 0, name="bad")
    pipeline.step(lambda x: x, name="needs", arguments={"x": bad.result})
    pipeline.step(lambda: 1, name="other")
    ends = pipeline.step(lambda how: how, name="ends", arguments={"how": pipeline.status}, on_exit=True)
    with refused(PipelineFailed) as failed:
        pipeline.run(show=False)
    run = PipelineRun.load(failed.value.run)
    assert statuses(run) == {"bad": "failed", "needs": "blocked", "other": "succeeded", "ends": "succeeded"}
    assert run[ends.name].result == {"status": "failed", "failed": {"bad": "ZeroDivisionError: division by zero"}}
    assert run.status == "failed"


def test_a_failed_step_is_tried_again(tmp_path: Path, calls: Calls) -> None:
    def flaky() -> str:
        calls.seen.append("call")
        if len(calls.seen) < 3:
            raise RuntimeError("not yet")
        return "done"

    pipeline = make(tmp_path)
    pipeline.step(flaky, retries=2)
    run = pipeline.run(show=False)
    assert (run["flaky"].result, run["flaky"].attempt) == ("done", 3)


def test_a_call_that_takes_too_long_has_failed(tmp_path: Path) -> None:
    over = threading.Event()
    pipeline = make(tmp_path)
    pipeline.step(over.wait, name="hangs", timeout=0.2)
    try:
        with refused(PipelineFailed):
            pipeline.run(show=False)
    finally:
        over.set()


def test_a_result_that_is_no_json_is_an_error(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    pipeline.step(lambda: {1, 2}, name="set")
    with refused(PipelineFailed):
        pipeline.run(show=False)


# ---- mistakes


def test_all_mistakes_are_found_before_anything_runs(tmp_path: Path, calls: Calls) -> None:
    pipeline, other = make(tmp_path), Pipeline("other", store=tmp_path / "other")
    pipeline.parameter("lr", float)
    stranger = other.step(lambda: 1, name="stranger")
    good = pipeline.step(calls.returning("good"), name="good")
    pipeline.step(lambda x: x, name="unknown", arguments={"y": 1})
    pipeline.step(lambda x: x, name="foreign", arguments={"x": stranger.result})
    pipeline.step(lambda x: x, name="output", arguments={"x": good.outputs.model})
    pipeline.step(lambda x: x, name="status", arguments={"x": pipeline.status})
    with pytest.raises(InvalidInputError) as wrong:
        pipeline.run(show=False, lr=0.1)
    text = str(wrong.value)
    for part in (
        "step 'unknown': arguments['y']: is not a parameter of the function",
        "step 'unknown': arguments['x']: is required",
        "step 'foreign': stranger: is a step of another pipeline",
        "step 'output': good.outputs.model: step 'good' is a call, which has no outputs",
        "step 'status': pipeline.status: is known at the end only",
    ):
        assert part in text
    assert not calls.seen
    with refused(InvalidInputError, "rate", "lr") as wrong:
        pipeline.run(show=False, rate=1)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"lr": "fast"}, "lr"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"on": "maybe"}, "on"),
    ],
)
def test_parameters_have_types(tmp_path: Path, given: dict[str, Any], where: str) -> None:
    pipeline = make(tmp_path)
    for name, type_, default in (("lr", float, 1), ("n", int, 1), ("on", bool, False)):
        pipeline.parameter(name, type_, default)
    pipeline.step(lambda: 1, name="one")
    with refused(InvalidInputError, where):
        pipeline.run(show=False, **given)
    assert pipeline.check(lr="0.5", n="3", on="true") == {"lr": 0.5, "n": 3, "on": True}


# ---- what is kept from run to run


def test_a_second_run_takes_all_from_the_cache(tmp_path: Path, calls: Calls) -> None:
    def described() -> Pipeline:
        pipeline = make(tmp_path)
        lr = pipeline.parameter("lr", float, 0.1)
        data = pipeline.step(calls.returning("data", [1]), name="data")
        pipeline.step(calls.returning("train"), name="train", arguments={"data": data.result, "lr": lr})
        pipeline.step(calls.returning("always"), name="always", cache=False)
        return pipeline

    first = described().run(show=False)
    assert first["data"].reason == "it was not executed before"
    second = described().run(show=False)
    assert statuses(second) == {"data": "cached", "train": "cached", "always": "succeeded"}
    assert second["train"].result == {"data": [1], "lr": 0.1}
    assert first.id in second["train"].reason
    third = described().run(show=False, lr=0.2)
    assert statuses(third) == {"data": "cached", "train": "succeeded", "always": "succeeded"}
    assert third["train"].reason == "argument lr has changed"
    fourth = described().run(show=False, cache=False)
    assert set(statuses(fourth).values()) == {"succeeded"}
    counts = {name: calls.seen.count(name) for name in ("data", "train", "always")}
    assert counts == {"data": 2, "train": 3, "always": 4}


def test_a_changed_function_is_called_again(tmp_path: Path) -> None:
    def run(source: str) -> PipelineRun:
        names: dict[str, Any] = {"__name__": "user"}
        exec(source, names)
        pipeline = make(tmp_path)
        pipeline.step(names["step"], name="one")
        return pipeline.run(show=False)

    assert run("def helper():\n return 1\ndef step():\n return helper()")["one"].result == 1
    assert run("def helper():\n return 1\ndef step():\n return helper()")["one"].status == "cached"
    changed = run("def helper():\n return 2\ndef step():\n return helper()")["one"]
    assert (changed.result, changed.reason) == (2, "the code of helper has changed")


# ---- other processes


def test_a_run_is_resumed_with_its_failed_steps(tmp_path: Path, calls: Calls) -> None:
    broken = True

    def flaky(x: int) -> int:
        if broken:
            raise RuntimeError("broken")
        return x

    pipeline = make(tmp_path)
    one = pipeline.step(calls.returning("one", 1), name="one")
    pipeline.step(flaky, arguments={"x": one.result})
    with pytest.raises(PipelineFailed):
        pipeline.run(show=False)
    broken = False
    run = pipeline.resume(show=False)
    assert statuses(run) == {"one": "succeeded", "flaky": "succeeded"}
    assert calls.seen == ["one"]
    with refused(RunNotFoundError):
        pipeline.resume(show=False)


def test_two_processes_do_not_work_on_one_run(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    pipeline.step(lambda: 1 / 0, name="bad")
    with pytest.raises(PipelineFailed) as failed:
        pipeline.run(show=False)
    with (
        claimed(open_store(failed.value.run)),
        pytest.raises(InUseError, match="is in use by the process") as used,
    ):
        pipeline.resume(show=False)
    assert used.value.holder["pid"]


def test_a_run_is_stopped_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, noticed = threading.Event(), threading.Event()
    is_requested = RunRecords.is_stop_requested.fget
    noting = property(lambda records: is_requested(records) and not noticed.set())
    monkeypatch.setattr(RunRecords, "is_stop_requested", noting)
    pipeline = make(tmp_path)
    first = pipeline.step(lambda: (begun.set(), noticed.wait(PATIENCE_S))[1], name="first")
    pipeline.step(lambda: 1, name="second", after=first)
    told: list[str] = []
    pipeline.step(
        lambda status: told.append(status["status"]),
        name="tell",
        arguments={"status": pipeline.status},
        on_exit=True,
    )
    raised: list[PipelineStopped] = []

    def run_it() -> None:
        with pytest.raises(PipelineStopped) as stopped:
            pipeline.run(show=False)
        raised.append(stopped.value)

    thread = threading.Thread(target=run_it)
    thread.start()
    assert begun.wait(PATIENCE_S)
    (run,) = make(tmp_path).runs()
    run.stop()
    thread.join()
    ended = PipelineRun.load(raised[0].run)
    assert (ended.status, ended["second"].status, raised[0].failures) == ("stopped", "stopped", {})
    assert told == ["stopped"], "steps of on_exit run also when a run is stopped"
    resumed = pipeline.resume(show=False)
    assert resumed["second"].status == "succeeded"


def test_a_run_is_shown_while_it_goes_on(tmp_path: Path) -> None:
    go = threading.Event()
    pipeline = make(tmp_path)
    first = pipeline.step(lambda: go.wait(2 * PATIENCE_S), name="first")
    pipeline.step(lambda: 1, name="second", after=first)
    thread = threading.Thread(target=lambda: pipeline.run(show=False))
    thread.start()
    try:
        run = until(lambda: next(iter(make(tmp_path).runs()), None), "the run")
        until(lambda: run.refresh()["first"].status == "running", "the first step")
        assert "first   running" in repr(run.refresh())
        assert "waiting" in run.refresh().svg()
    finally:
        go.set()
        thread.join()
    assert run.refresh().status == "succeeded"


def test_a_run_is_kept_in_a_store_without_a_folder(calls: Calls) -> None:
    def described() -> Pipeline:
        pipeline = Pipeline("test", store=f"memory://{id(calls)}")
        one = pipeline.step(calls.returning("one", 1), name="one")
        pipeline.step(calls.returning("two"), name="two", arguments={"x": one.result})
        return pipeline

    assert described().run(show=False)["two"].result == {"x": 1}
    run = described().run(show=False)
    assert statuses(run) == {"one": "cached", "two": "cached"}
    assert described().runs()[0].id == run.id


def test_a_second_run_takes_a_step_for_each_value_from_the_cache(tmp_path: Path, calls: Calls) -> None:
    def described() -> Pipeline:
        pipeline = make(tmp_path)
        every = pipeline.each(list(range(20)), calls.returning("each"), value="n", name="each")
        pipeline.step(calls.returning("sum"), name="sum", arguments={"of": every.result})
        return pipeline

    described().run(show=False)
    for _ in range(5):
        assert set(statuses(described().run(show=False)).values()) == {"cached"}
    assert len(calls.seen) == 21


def test_one_of_many_values_that_takes_too_long_fails_all(tmp_path: Path) -> None:
    over = threading.Event()

    def run(limit_s: float) -> tuple[float, PipelineFailed]:
        pipeline = make(tmp_path / f"{limit_s}")
        pipeline.each(
            [False, True], lambda hangs: hangs and over.wait(), value="hangs", name="each", timeout=limit_s
        )
        with pytest.raises(PipelineFailed) as failed:
            pipeline.run(show=False)
        return limit_s, failed.value

    try:
        limit_s, failed = long_enough(run, lambda found: "each[0]" not in str(found[1]), first_s=0.3)
    finally:
        over.set()
    assert f"1 step failed:\n  - each[1]: it did not finish within {limit_s:g} s\n" in str(failed)


def test_a_run_is_text_in_a_notebook_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline("text", store=tmp_path)
    pipeline.step(lambda: 1, name="one")
    run = pipeline.run(show=False)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert "one" in repr(run)
    assert "succeeded" in str(run)


def _searched(store: Path, trials: int = 5, **settings: Any) -> Pipeline:
    def train(config: dict[str, Any]) -> dict[str, float]:
        with (store / "calls").open("a") as calls:
            calls.write("1")
        return {"loss": (config["x"] - 0.25) ** 2}

    pipeline = Pipeline("search", store=store)
    found = pipeline.step(Tuner(train, {"x": Uniform(0, 1)}, trials=trials, seed=1, **settings))
    pipeline.step(lambda x: round(x, 1), name="use", arguments={"x": found.result["params"]["x"]})
    return pipeline


def test_a_search_is_a_step_whose_result_is_its_best_trial(tmp_path: Path) -> None:
    run = _searched(tmp_path).run(show=False)
    result = run["search"].result
    assert run["use"].result == round(result["params"]["x"], 1)
    assert result["value"] == result["values"]["loss"] == (result["params"]["x"] - 0.25) ** 2
    assert (tmp_path / "calls").read_text() == "1" * 5
    assert {step.status for step in _searched(tmp_path).run(show=False).steps.values()} == {"cached"}
    assert _searched(tmp_path, trials=6).run(show=False)["search"].reason == "the search has changed"


def test_a_search_that_was_cut_off_goes_on_with_its_trials(tmp_path: Path) -> None:
    run = _searched(tmp_path).run(show=False)
    search = run["search"]
    search.status, run.record.status = "running", "running"  # as a killed process leaves them
    run.records.write_step(search)
    run.records.write_run(run.record)
    resumed = _searched(tmp_path).resume(run.id, show=False)
    assert resumed["search"].result == search.result
    assert (tmp_path / "calls").read_text() == "1" * 5  # no trial was run again


def test_what_a_search_does_not_take_is_said(tmp_path: Path) -> None:
    pipeline = Pipeline("search", store=tmp_path)
    tuner = Tuner(lambda config: 1.0, {"x": [1]})
    with refused(InvalidInputError, "hyperparameters"):
        pipeline.step(tuner, hyperparameters={"lr": 1})


@pytest.mark.parametrize("place", ["folder", "memory://runs/interrupted/"])
def test_a_run_without_a_process_is_interrupted(tmp_path: Path, place: str) -> None:
    store = tmp_path if place == "folder" else place
    pipeline = Pipeline("cut-off", store=store)
    seen: list[str] = []
    pipeline.step(lambda: seen.append(pipeline.runs()[0].status), name="look")
    run = pipeline.run(show=False)
    assert seen == ["running"]
    run.record.status = "running"  # as a killed process leaves it
    run.records.write_run(run.record)
    assert PipelineRun.load(run.uri).status == "interrupted"
    assert pipeline.resume(run.id, show=False).status == "succeeded"


def test_looking_at_a_run_keeps_no_process_from_working_on_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with claimed(store):
        assert is_claimed(store)
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            is_claimed(store)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(20):
            with claimed(store):
                pass
    finally:
        is_over.set()
        looking.join()


def test_a_run_of_another_user_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline("theirs", store=tmp_path)
    pipeline.step(lambda: 1, name="one")
    run = pipeline.run(show=False)
    run.record.status = "running"
    run.records.write_run(run.record)

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pai_sdk._data.storage.claims.is_locked", refuse)
    assert PipelineRun.load(run.uri).status == "running"
