"""Mistakes in the description of a pipeline: each is an error that says where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.pipeline import Pipeline
from pai_sdk._client.session import Session
from pai_sdk._client.submit.estimator import Estimator
from pai_sdk._client.tune import Tuner, Uniform
from pai_sdk.errors import InvalidInputError, PipelineFailed
from tests.support.messages import refused


def give(x: Any = 1) -> Any:
    return x


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline("outer", store=tmp_path / "outer")


@pytest.fixture
def inner(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline("inner", store=tmp_path / "inner")
    number = pipeline.parameter("number", int, 1)
    pipeline.step(give, name="a", arguments={"x": number})
    return pipeline


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"name": 3}, "name: 3 is not a valid name"),
        ({"arguments": ["x"]}, "arguments: expected a mapping, got a list"),
        ({"arguments": "x"}, "arguments: expected a mapping, got a string"),
        ({"arguments": {1: 2}}, "arguments[1]: expected a string as the name"),
        ({"inputs": ["data"]}, "inputs: expected a mapping, got a list"),
        ({"hyperparameters": "lr"}, "hyperparameters: expected a mapping, got a string"),
        ({"outputs": 3}, "outputs: expected a list of names, or a mapping of names to URIs, got an integer"),
        ({"outputs": [3]}, "outputs: expected names as strings, got [3]"),
        ({"after": "a"}, "after: expected a step or a list of steps, got 'a'"),
        ({"after": ["a"]}, "after: expected a step or a list of steps, got ['a']"),
        ({"after": 3}, "after: expected a step or a list of steps, got 3"),
        ({"timeout": float("nan")}, "timeout: expected a number of seconds above 0, got nan"),
    ],
)
def test_wrong_types_are_problems(pipeline: Pipeline, given: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidInputError) as wrong:
        pipeline.step(give, **given)
    assert what in str(wrong.value)


@pytest.mark.parametrize(
    ("misplace", "what"),
    [
        (lambda step: step, "arguments['x']: is not a value but the step 'one'"),
        (lambda step: [step], "arguments['x'][0]: is not a value but the step 'one'"),
        (lambda step: step.outputs, "arguments['x']: is not a value but the step 'one'"),
        (lambda step: step.result > 3, "arguments['x']: is the condition one.result > 3"),
        (lambda step: {step.result}, "arguments['x']: has a reference in a set or as a key"),
        (lambda step: {step.result: 1}, "arguments['x']: has a reference in a set or as a key"),
    ],
)
def test_what_is_no_value_is_found_before_anything_runs(
    pipeline: Pipeline, misplace: Callable[[Any], Any], what: str
) -> None:
    step = pipeline.step(give, name="one")
    pipeline.step(lambda x: None, name="two", arguments={"x": misplace(step)})
    with pytest.raises(InvalidInputError) as wrong:
        pipeline.run(show=False)
    assert what in str(wrong.value)


def test_a_value_that_is_not_known_yet_is_not_part_of_a_text(pipeline: Pipeline) -> None:
    lr = pipeline.parameter("lr", float, 0.1)
    with refused(TypeError):
        f"oss://models/{lr}/"


def test_values_of_each_may_be_a_range(pipeline: Pipeline) -> None:
    pipeline.each(range(3), give, value="x", name="each")
    assert pipeline.run(show=False)["each"].result == [0, 1, 2]


def test_the_name_of_a_value_is_a_text(pipeline: Pipeline) -> None:
    pipeline.each([1], give, value=3, name="each")  # type: ignore[arg-type]
    with refused(InvalidInputError, "step 'each': value"):
        pipeline.check()


def test_parameters_that_cannot_be_given_are_problems(pipeline: Pipeline) -> None:
    with refused(InvalidInputError, "name"):
        pipeline.parameter("self", int)
    pipeline.parameter("lr", float)
    with refused(InvalidInputError, "lr", "pipeline"):
        pipeline.check(lr=10**400)


def test_what_ctrl_c_does_is_one_of_two(pipeline: Pipeline) -> None:
    pipeline.step(give)
    with refused(InvalidInputError, "on_interrupt"):
        pipeline.run(show=False, on_interrupt="kill")  # type: ignore[arg-type]
    assert pipeline.runs() == []


def test_inputs_of_a_search_that_calls_a_function_are_problems(pipeline: Pipeline) -> None:
    tuner = Tuner(lambda config: 1.0, {"lr": Uniform(0, 1)}, trials=1)
    pipeline.step(tuner, name="one", inputs={"data": "x"})
    pipeline.each([1], tuner, value="x", name="each")
    with refused(InvalidInputError, "step 'one': inputs['data']", "step 'each': inputs['x']"):
        pipeline.run(show=False)


def test_outputs_of_jobs_for_no_values_are_none(pipeline: Pipeline) -> None:
    session = Session("local", "1", oss_bucket_name="bucket", endpoint="http://127.0.0.1:9")
    estimator = Estimator("python:3.11", "true", instance_type="ecs.c6.large", session=session)
    trained = pipeline.each([], estimator, value="lr", name="train")
    pipeline.step(give, name="models", arguments={"x": trained.outputs.model})
    assert pipeline.run(show=False)["models"].result == []


@pytest.mark.parametrize("switch", ["cache", "on_exit"])
def test_a_text_is_no_switch(pipeline: Pipeline, switch: str) -> None:
    with refused(InvalidInputError):
        pipeline.step(give, **{switch: "no"})
    pipeline.step(give)
    with refused(InvalidInputError, "cache"):
        pipeline.run(show=False, cache="no")


# ---- a pipeline as a step


def test_steps_of_a_nested_pipeline_replace_no_others(pipeline: Pipeline, inner: Pipeline) -> None:
    pipeline.step(give, name="sub/a")
    with refused(InvalidInputError, "name"):
        pipeline.step(inner, name="sub")
    pipeline.step(inner, name="other")
    with refused(InvalidInputError, "name"):
        pipeline.step(inner, name="other")
    assert [*pipeline.steps] == ["sub/a", "other/a"]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"name": "a b"}, "name: 'a b/a' is not a valid name"),
        ({"arguments": {"number": "many"}}, "arguments['number']: expected an integer, got 'many'"),
        ({"arguments": {"nubmer": 1}}, "arguments['nubmer']: is not a parameter of the pipeline"),
        ({"retries": 1}, "retries: is for jobs and functions"),
        ({"timeout": 1}, "timeout: is for jobs and functions"),
        ({"cache": False}, "cache: is for jobs and functions"),
        ({"on_exit": True}, "on_exit: is for jobs and functions"),
        ({"inputs": {"data": "x"}}, "inputs: is for jobs and functions"),
        ({"when": True}, "when: expected a comparison of a result or a parameter, got True"),
        ({"after": "a"}, "after: expected a step or a list of steps, got 'a'"),
    ],
)
def test_mistakes_in_a_nested_pipeline(
    pipeline: Pipeline, inner: Pipeline, given: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidInputError) as wrong:
        pipeline.step(inner, **given)
    assert what in str(wrong.value)
    assert not pipeline.steps


def test_a_pipeline_is_no_step_of_itself(pipeline: Pipeline) -> None:
    pipeline.step(give)
    with refused(InvalidInputError, "work"):
        pipeline.step(pipeline, name="again")


def test_a_nested_pipeline_uses_nothing_of_a_third_one(tmp_path: Path, pipeline: Pipeline) -> None:
    third, inner = (Pipeline(name, store=tmp_path / name) for name in ("third", "inner"))
    step, parameter = third.step(give, name="stranger"), third.parameter("number", int, 1)
    inner.step(give, name="result", arguments={"x": step.result})
    inner.step(give, name="parameter", arguments={"x": parameter})
    inner.step(give, name="after", after=step)
    pipeline.step(inner, name="sub")
    with pytest.raises(InvalidInputError) as wrong:
        pipeline.check()
    text = str(wrong.value)
    assert "step 'sub/result': stranger: is a step of another pipeline" in text
    assert "step 'sub/parameter': parameter 'number': is one of another pipeline" in text
    assert "step 'sub/after': stranger: is a step of another pipeline" in text


# ---- at the end of a run


def test_a_step_at_the_end_may_name_steps_before_it(pipeline: Pipeline) -> None:
    broken = pipeline.step(lambda: 1 / 0, name="broken")
    first = pipeline.step(give, name="first", on_exit=True, after=broken)
    pipeline.step(give, name="second", on_exit=True, after=[broken, first])
    with refused(PipelineFailed):
        pipeline.run(show=False)
    (run,) = pipeline.runs()
    assert {name: one.status for name, one in run.steps.items()} == {
        "broken": "failed",
        "first": "succeeded",
        "second": "succeeded",
    }
