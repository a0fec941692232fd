"""A misspelt keyword is reported by its name, with the nearest one, all at once; nothing else changes."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Processor
from pai_sdk._client.submit.algorithm_estimator import AlgorithmEstimator
from pai_sdk.errors import InvalidInputError, WrongCallError
from tests.support.messages import refused
from tests.unit.client.submit.test_submitting import FakeSession

pytestmark = pytest.mark.interpreter


def problems(call: Any) -> dict[str, str]:
    with pytest.raises(WrongCallError) as caught:
        call()
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, InvalidInputError)
    return {problem.where: problem.hint or problem.what for problem in caught.value.problems}


def test_all_misspelt_keywords_are_reported_at_once() -> None:
    assert problems(lambda: Estimator("img", comand="true", instance_typ="x", resorce_id="q", zzzzz=1)) == {
        "comand": "did you mean 'command'?",  # and not, beside it, that `command` is missing
        "instance_typ": "did you mean 'instance_type'?",
        "resorce_id": "did you mean 'resource_id'?",
        "zzzzz": "is an unknown keyword argument",
    }


def test_missing_ones_are_reported_with_them() -> None:
    assert problems(lambda: Processor(paramters={})) == {
        "paramters": "did you mean 'parameters'?",
        "image_uri": "is required",
        "command": "is required",
    }


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ({"entry_point": "train.py"}, {"command": "python train.py $PAI_USER_ARGS"}),
        ({"entry_point": Path("my code/run.sh")}, {"command": "bash 'my code/run.sh' $PAI_USER_ARGS"}),
        ({"max_run": 60}, {"max_run_time": 60}),
        ({"environment": {"A": "b"}}, {"environments": {"A": "b"}}),
        ({"tags": [{"Key": "team", "Value": "vision"}]}, {"labels": {"team": "vision"}}),
        ({"tags": {"team": "vision"}}, {"labels": {"team": "vision"}}),
        ({"checkpoint_s3_uri": "oss://models/c/"}, {"checkpoints_path": "oss://models/c/"}),
        ({"role": "acs:ram::1:role/r"}, {"role_arn": "acs:ram::1:role/r"}),
        ({"use_spot_instances": True}, {"spot_spec": {"spot_strategy": "SpotAsPriceGo"}}),
        ({"use_spot_instances": False, "sagemaker_session": None}, {"spot_spec": None, "session": None}),
    ],
)
def test_keywords_of_sagemaker_that_mean_the_same_are_accepted(
    given: dict[str, Any], ours: dict[str, Any]
) -> None:
    made = Estimator("img", **({} if "command" in ours else {"command": "true"}), **given)
    assert {name: getattr(made, name) for name in ours} == ours


def test_those_that_mean_something_else_are_reported_by_our_name() -> None:
    reported = problems(
        lambda: Estimator(
            "img",
            entry_point="train.jl",
            role="SageMakerRole",
            use_spot_instances="yes",
            volume_size=30,
            max_wait=60,
            framework_version="2.1",
            subnets=["a"],
            machine_type="n1",
        )
    )
    assert "command='python train.py'" in reported["entry_point"]
    assert "command" not in reported
    assert "role_arn" in reported["role"]
    assert "SpotSpec" in reported["use_spot_instances"]
    assert "instance_type" in reported["volume_size"]
    assert "job.wait(timeout=…)" in reported["max_wait"]
    assert "retrieve(" in reported["framework_version"]
    assert "UserVpcConfig(" in reported["subnets"]
    assert reported["machine_type"] == "instance_type='ecs.c6.large'"


def test_two_names_of_one_parameter_are_refused() -> None:
    for call, name in (
        (lambda: Estimator("img", "true", max_run=1, max_run_time=2), "max_run"),
        (lambda: Estimator("img", "true", entry_point="train.py"), "entry_point"),
        (lambda: Estimator("img", command="true", entry_point="train.jl"), "entry_point"),
    ):
        with refused(WrongCallError, name) as caught:
            call()
        assert [problem.hint for problem in caught.value.problems] == ["give only one of them"]
    assert "tags" in problems(lambda: Estimator("img", "true", tags=["team"]))


def test_inputs_as_keywords_are_a_dict(tmp_path: Path) -> None:
    made = Estimator("img", "true", instance_type="t")
    assert problems(lambda: made.fit(train="oss://models/a/", test=tmp_path, seed=3)) == {  # type: ignore[call-arg]
        "train": "inputs is a mapping: fit({'train': …})",
        "test": "inputs is a mapping: fit({'test': …})",
        "seed": "is an unknown keyword argument",
    }


def test_logs_of_fit_is_show_logs() -> None:
    estimator = Estimator("img", "true", instance_type="ecs.x", session=FakeSession())
    assert estimator.fit(wait=False, logs=False).id


@pytest.mark.parametrize(
    "name",
    ["tracker_config", "gpu_type", "metrics", "model_group_config", "parent_run_name", "run_name"],
)
def test_a_name_that_says_something_else_is_not_suggested(name: str) -> None:
    assert problems(lambda: Estimator("img", "true", **{name: 1})) == {name: "is an unknown keyword argument"}


@pytest.mark.parametrize(
    "call",
    [
        lambda: Processor("img", "true").run(input={}),
        lambda: Estimator("img", "true").fit(input={}),
        lambda: Estimator("img", "true").plan(input={}),
        lambda: AlgorithmEstimator("a").fit(input={}),
    ],
)
def test_so_are_those_of_the_calls_that_submit(call: Any) -> None:
    assert problems(call) == {"input": "did you mean 'inputs'?"}


def test_so_are_those_that_a_subclass_hands_on() -> None:
    class Tool(Processor):
        def __init__(self, option: str, **rest: Any) -> None:
            super().__init__("img", f"tool {option}", **rest)

    assert Tool("-x", instance_type="t").command == "tool -x"
    assert problems(lambda: Tool("-x", instance_typ="t")) == {"instance_typ": "did you mean 'instance_type'?"}


def test_a_subclass_may_be_a_dataclass_with_parameters_of_its_own() -> None:
    @dataclass(repr=False, eq=False)
    class Tuner(Estimator):
        trials: int = 3

    tuner = Tuner("img", "true", trials=5, instance_type="t")
    assert (tuner.trials, tuner.instance_type) == (5, "t")
    with pytest.raises(TypeError, match="instance_typ"):
        Tuner("img", "true", instance_typ="t")  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [Estimator, Processor])
def test_what_dataclasses_and_editors_know_is_kept(kind: type[Estimator]) -> None:
    known = [*inspect.signature(kind).parameters]
    assert sorted(known) == sorted(field.name for field in fields(kind) if field.init)
    made = kind("img", "true", instance_type="t")
    assert replace(made, instance_type="other").instance_type == "other"
    assert copy.copy(made).instance_type == pickle.loads(pickle.dumps(made)).instance_type == "t"
    assert kind.__init__.__name__ == "__init__"


@pytest.mark.parametrize("kind", [Estimator, Processor])
def test_help_has_a_readable_signature_and_all_attributes(kind: type[Estimator]) -> None:
    """The signature had 2,000 characters, and the attributes of `JobParameters` were on another page."""
    text = pydoc.plain(pydoc.render_doc(kind))
    assert max(map(len, text.splitlines())) < 800
    attributes = text.partition("Attributes:")[2].partition("Example:")[0]
    for name in inspect.signature(kind).parameters:
        assert f"|      {name}: " in attributes, name


def test_an_estimator_without_hyperparameters_has_an_empty_dict() -> None:
    first, second = (Estimator("img", "true", instance_type="t") for _ in range(2))
    assert first.hyperparameters == {}
    first.hyperparameters["lr"] = 0.1  # type: ignore[index]
    assert second.hyperparameters == {}
    assert "hyperparameters" not in repr(second)


def test_a_script_that_only_imports_pays_for_no_model() -> None:
    heavy = "import sys, pai_sdk.estimator, pai_sdk.processor; print({'pydantic', 'oss2'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
