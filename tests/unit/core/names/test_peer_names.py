"""Names of SageMaker, Azure ML and Vertex AI: each is accepted, or its error says what to write."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pai_sdk.common.oss_utils import upload
from pai_sdk.estimator import SpotSpec, UserVpcConfig
from pai_sdk.image import retrieve
from pai_sdk.model import ModelRecipe
from pai_sdk.tensorboard import TensorBoard

import pai_sdk
from pai_sdk import (
    AlgorithmEstimator,
    Estimator,
    Objective,
    Pipeline,
    Processor,
    Session,
    TrainingJob,
    Tuner,
    setup_default_session,
)
from pai_sdk._client.submit.submitter import EstimatorBase, JobSubmitter
from pai_sdk._core.names.peer_attributes import SELDOM_ATTRIBUTES, attribute_hint
from pai_sdk._core.names.peer_imports import NAMES, OTHER_NAMES, check_name
from pai_sdk._core.names.peer_modules import MODULES
from pai_sdk._core.names.peer_names import ATTRIBUTES, KEYWORDS, keyword_hint, value_hint
from pai_sdk.alipai.session_names import SessionAliases
from pai_sdk.errors import InvalidInputError, NotOfferedAttributeError, NotOfferedError, PaiError, WrongCallError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

PACKAGE = Path(pai_sdk.__file__).parent
ESTIMATOR = Estimator("img", "true")
# Calls that check their keywords, each with what they need.
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (Estimator, ("img", "true")),
    (AlgorithmEstimator, ()),
    (Processor, ("img", "true")),
    (Session, ()),
    (ESTIMATOR.fit, ()),
    (TrainingJob.get, ()),
    (Session().list_jobs, ()),
    (TrainingJob("train1", None).wait, ()),  # type: ignore[arg-type]
    (upload, ()),
    (ModelRecipe, ()),
    (Tuner, (len, {"lr": [0.1]})),
    (Tuner(ESTIMATOR, {"lr": [0.1]}).run, ()),
]
OF_JOBS = "instance_type"
# Of each accepted keyword whose value is converted: one that means the same as ours.
MEANS_THE_SAME = {
    "entry_point": "train.py",
    "entry_script": "train.py",
    "env": {"A": "b"},
    "environment": {"A": "b"},
    "environment_variables": {"A": "b"},
    "role": "acs:ram::1:role/r",
    "goal": "Minimize",
    "objective_type": "Minimize",
    "tags": {"team": "vision"},
    "use_spot_instances": True,
    "enable_managed_spot_training": True,
    "train_use_spot_instances": True,
}


def parameters(call: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(call).parameters)


def calls_of(name: str) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The calls that have the parameter which the keyword concerns."""
    ours = KEYWORDS[name].parameter or OF_JOBS
    return ((call, needed) for call, needed in CALLS if ours in parameters(call) and name not in parameters(call))


def problem_of(name: str, call: Callable[..., Any], *args: Any, **others: Any) -> str:
    with pytest.raises(WrongCallError) as caught:
        call(*args, **{name: object()}, **others)
    (problem,) = [each for each in caught.value.problems if each.where == name]
    return f"{problem.what}: {problem.hint}"


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_concerns_a_parameter_and_is_none_of_ours(name: str) -> None:
    calls = [*calls_of(name)]
    assert calls
    ours = KEYWORDS[name].parameter or OF_JOBS
    with_both = [call for call, _ in CALLS if {name, ours} <= {*parameters(call)}]
    assert with_both in ([], [ModelRecipe])  # a recipe has parameters of its own for its model


@pytest.mark.parametrize("name", [name for name, entry in KEYWORDS.items() if entry.convert is None])
def test_the_hint_of_a_keyword_is_given_alone_and_beside_its_replacement(name: str) -> None:
    ours, instead, _ = KEYWORDS[name]
    for call, needed in calls_of(name):
        assert problem_of(name, call, *needed) == f"is an unknown keyword argument: {instead}"
        if ours not in parameters(call)[: len(needed)]:
            both = problem_of(name, call, *needed, **{ours or OF_JOBS: "x"})
            assert both == f"is an unknown keyword argument: {instead}"


@pytest.mark.parametrize("name", [name for name, entry in KEYWORDS.items() if entry.convert is not None])
def test_an_accepted_keyword_is_refused_beside_its_replacement(name: str) -> None:
    ours = KEYWORDS[name].parameter
    for call, needed in calls_of(name):
        given = () if ours in parameters(call)[: len(needed)] else (ours,)
        both = problem_of(name, call, *needed, **dict.fromkeys(given, "x"))
        assert both == f"is an alias of {ours!r}, which is also given: give only one of them"


@pytest.mark.parametrize(
    "name", [name for name, (ours, _, convert) in KEYWORDS.items() if convert and ours in parameters(Estimator)]
)
def test_an_accepted_keyword_sets_our_parameter(name: str) -> None:
    ours = KEYWORDS[name].parameter
    value = MEANS_THE_SAME.get(name, "a value")
    needed = {each: "x" for each in ("image_uri", "command") if each != ours}
    assert getattr(Estimator(**needed, **{name: value}), ours) is not None  # type: ignore[arg-type]


def test_a_keyword_that_is_switched_off_asks_for_nothing() -> None:
    made = Estimator("img", "true", debugger_hook_config=False, subnets=None, sagemaker_session=None)  # type: ignore[call-arg]
    assert made.image_uri == "img"


def test_keywords_of_sessions() -> None:
    assert Session("cn-hangzhou", default_bucket="models").default_bucket() == "models"  # type: ignore[call-arg]
    with refused(WrongCallError, "resource_group_name"):
        setup_default_session("cn-hangzhou", resource_group_name="group")


def test_a_hint_is_given_only_where_it_helps() -> None:
    assert problem_of("py_version", retrieve, "PyTorch") == "is an unknown keyword argument: "
    assert problem_of("resume_from", Processor, "img", "true") == "is an unknown keyword argument: "


def test_a_call_names_the_object_that_takes_the_parameter() -> None:
    tuner = Tuner(ESTIMATOR, {"lr": [0.1]})
    assert problem_of("labels", Tuner, ESTIMATOR, {"lr": [0.1]}) == "is a parameter of Estimator, not of Tuner(): "
    assert problem_of("tags", tuner.run).endswith("; labels is a parameter of Estimator")
    assert problem_of("instance_type", ESTIMATOR.fit) == "is a parameter of Estimator, not of fit(): "
    assert problem_of("machine_type", ESTIMATOR.fit).endswith("; instance_type is a parameter of Estimator")
    assert "labels is a parameter of Processor" in problem_of("tags", Processor("img", "true").run)
    assert problem_of("input_data_config", ESTIMATOR.fit).endswith(KEYWORDS["input_data_config"].instead)


def test_settings_and_jobs_are_told_apart() -> None:
    for name in ("region_id", "region", "project", "workspace", "default_bucket", "credentials"):
        assert "it is of the session, session=Session(" in problem_of(name, Estimator, "img", "true")
    for name in ("service_account", "experiment"):
        assert "it is of each job: " in problem_of(name, Session)


def test_a_function_in_place_of_a_command_names_its_estimator() -> None:
    with pytest.raises(WrongCallError) as caught:
        Estimator(lambda config: None, instance_type="local")  # type: ignore[call-arg, arg-type]
    (problem,) = caught.value.problems
    assert (problem.where, problem.hint.partition("(")[0]) == ("command", "Estimator.from_function")


def test_too_many_values_by_position_are_named() -> None:
    calls: list[tuple[Callable[..., Any], str]] = [
        (Estimator, "Estimator()"),
        (Processor, "Processor()"),
        (Session, "Session()"),
        (ESTIMATOR.fit, "fit()"),
        (ESTIMATOR.wait, "wait()"),
        (upload, "upload()"),
    ]
    for call, where in calls:
        with pytest.raises(WrongCallError) as caught:
            call(*["secret"] * 12)
        (problem,) = caught.value.problems
        assert (problem.where, "got 12" in problem.what) == (where, True)
        assert "secret" not in str(caught.value)
    with pytest.raises(WrongCallError) as caught:
        Estimator(*["a"] * 7, image="b")  # type: ignore[arg-type]
    assert [each.where for each in caught.value.problems] == ["Estimator()", "image"]
    assert (
        caught.value.problems[0].hint
        == "give the others by name: environments=…, requirements=…, max_run_time=…, …"
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("package", ["pai_sdk", "pai_sdk.estimator", "pai_sdk.job"])
def test_the_import_of_a_name_says_what_replaces_it(package: str, name: str) -> None:
    with pytest.raises(NotOfferedError) as caught:
        exec(f"from {package} import {name}")  # the statement, which would hide an AttributeError
    assert (caught.value.name, caught.value.instead) == (name, NAMES[name])


def test_no_name_is_one_of_ours() -> None:
    stubs = PACKAGE.rglob("*.pyi")
    modules = {".".join(stub.relative_to(PACKAGE.parent).with_suffix("").parts) for stub in stubs}
    ours = {name for module in modules for name in import_module(module.removesuffix(".__init__")).__all__}
    assert "Estimator" in ours
    # Of executors, reports and rules; Azure ML and SageMaker have others of these names.
    assert ours & (NAMES.keys() | OTHER_NAMES.keys()) == {"Environment", "CheckpointConfig", "Rule"}


TABLES = (ATTRIBUTES, SELDOM_ATTRIBUTES)
CLASSES = {each.__name__: each for each in (JobSubmitter, EstimatorBase, Processor, TrainingJob, Session, Tuner)}
KINDS = (Estimator, AlgorithmEstimator, Processor, TrainingJob, Session, Tuner)


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [(owner, name, text) for table in TABLES for owner, hints in table.items() for name, text in hints.items()],
)
def test_an_attribute_says_what_replaces_it(owner: str, name: str, instead: str) -> None:
    for kind in KINDS:
        if issubclass(kind, CLASSES[owner]):
            made = object.__new__(kind)
            with pytest.raises(NotOfferedAttributeError) as caught:
                getattr(made, name)
            assert (caught.value.name, caught.value.instead) == (
                f"{kind.__name__}.{name}",
                instead,
            )
            assert isinstance(caught.value, AttributeError | PaiError)
            assert not hasattr(made, name)


def test_other_attributes_are_unknown_as_usual() -> None:
    with pytest.raises(AttributeError, match="'Estimator' object has no attribute 'colour'"):
        _ = ESTIMATOR.colour  # type: ignore[attr-defined]

    class Wrong(Estimator):
        @property
        def size(self) -> int:
            return self.sise  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(AttributeError, match="'Wrong' object has no attribute 'sise'"):
        _ = Wrong("img", "true").size


def test_attributes_that_mean_the_same_work() -> None:
    assert ESTIMATOR.latest_training_job is None
    with refused(NotOfferedError):
        Estimator.attach("digits-1")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("arn:aws:iam::123456789012:role/Trainer", "command: is a role (role_arn="),
        ("acs:ram::1:role/r", "command: is a role (role_arn="),
        (
            "python t.py \\\n --data ${{inputs.train}}",
            r"command: has a placeholder of Azure ML (write $PAI_INPUT_",
        ),
        ("python t.py ${{ outputs.model }}", r"command: has a placeholder of Azure ML (write $PAI_INPUT_"),
    ],
)
def test_a_value_of_another_sdk_is_refused_before_anything_is_sent(command: str, told: str) -> None:
    session = Session("cn-hangzhou", "12345", oss_bucket_name="models", access_key_id="i", access_key_secret="s")
    for make in (Estimator, Processor):
        with pytest.raises(InvalidInputError) as caught:
            make("img", command, instance_type="ecs.c6.large", session=session).plan()
        assert str(caught.value).startswith(told)
    with refused(InvalidInputError, "image_uri"):
        Processor("acs:ram::1:role/r", "true", instance_type="ecs.c6.large", session=session).plan()
    plain = Estimator("img", "echo ${A} $((1)) ${{", instance_type="ecs.c6.large", session=session)
    assert plain.plan()
    with refused(InvalidInputError, "inputs['train']"):
        plain.plan({"train": "s3://bucket/data/"})


def test_hints_name_what_there_is() -> None:
    texts = [
        *(entry.instead for entry in KEYWORDS.values()),
        *NAMES.values(),
        *OTHER_NAMES.values(),
        *MODULES.values(),
        *(text for table in TABLES for hints in table.values() for text in hints.values()),
    ]
    owners = {"session": Session, "job": TrainingJob, "estimator": Estimator}
    uses = {use for text in texts for use in re.findall(r"\b(session|job|estimator)\.(\w+)", text)}
    aliases = {f"session.{name}" for name in vars(SessionAliases)}
    unknown = {f"{owner}.{name}" for owner, name in uses if not hasattr(owners[owner], name)}
    assert unknown - aliases - {"job.yaml"} == set()
    known = set[str]().union(
        *(parameters(call) for call, _ in CALLS),
        *(parameters(call) for call in (Processor.run, Session.embedded, TrainingJob.logs, retrieve)),
        *(parameters(call) for call in (Objective, Pipeline.run)),
        *(SpotSpec.model_fields, UserVpcConfig.model_fields),
        (name for name, entry in KEYWORDS.items() if entry.convert),
        ("loss",),  # in a regular expression
    )
    assert {name for text in texts for name in re.findall(r"\b([a-z_]+)=(?!\()", text)} <= known


def test_strings_of_other_clouds_have_a_replacement() -> None:
    assert value_hint("s3://bucket/data/") == ("is a URI of another cloud", "here it is oss://bucket/folder/")
    assert value_hint("python train.py") is None


@pytest.mark.parametrize("name", [*MODULES, "model._model_recipe", "job._local_training_job", "api.job"])
def test_a_module_that_is_left_out_says_what_replaces_it(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="use instead: ") as caught:
        import_module(f"pai_sdk.{name}")
    assert caught.value.name == ("pai_sdk.api" if name == "api.job" else f"pai_sdk.{name}")


def test_other_modules_are_unknown_as_usual() -> None:
    for name in ("pai_sdk.colour", "pai_sdk.model.colour", "pai_sdk.estimator.colour"):
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
            import_module(name)


def test_hyperparameters_can_be_called() -> None:
    made = Estimator("img", "true", hyperparameters={"lr": 0.1})
    assert made.hyperparameters() == made.hyperparameters == {"lr": 0.1}  # type: ignore[misc, operator]
    made.set_hyperparameters(epochs=3)
    assert made.hyperparameters() == {"lr": 0.1, "epochs": 3}  # type: ignore[misc, operator]


def test_a_method_that_is_not_called_is_named() -> None:
    session = Session("cn-hangzhou", "12345", oss_bucket_name="models", access_key_id="i", access_key_secret="s")
    made = Estimator("img", "true", instance_type="ecs.c6.large", session=session)
    for value in (made.model_data, f"{made.model_data}"):
        with pytest.raises(InvalidInputError, match=r"model_data\(\)"):
            made.plan({"model": value})  # type: ignore[dict-item]
    for value in (made.model_data, f"{made.model_data}"):
        for others in ({"hyperparameters": {"model": value}}, {"environments": {"MODEL": value}}):
            with pytest.raises(InvalidInputError, match=r"model_data\(\)") as caught:
                Estimator("img", "true", instance_type="ecs.c6.large", session=session, **others).plan()  # type: ignore[arg-type]
            assert [each.where[:12] for each in caught.value.problems] == [next(iter(others))[:12]]
    for call in (lambda method: session.download(method, "folder"), TensorBoard.create):
        with pytest.raises(InvalidInputError, match=r"call it: model_data\(\)"):
            call(made.model_data)


def test_keywords_of_other_sdks_have_a_replacement() -> None:
    assert keyword_hint("replica_count", ["instance_type", "instance_count"]) == "instance_count=2"
    assert keyword_hint("project", ["uri"]) == ""


def test_attributes_of_other_sdks_have_a_replacement() -> None:
    assert attribute_hint(TrainingJob, "failure_reason") == "reason_message"
    assert attribute_hint(Estimator, "tags") == "labels"  # of a keyword, the parameter
    assert attribute_hint(Estimator, "rules") == KEYWORDS["rules"].instead
    assert attribute_hint(TrainingJob, "colour") is None


def test_an_import_of_another_sdk_names_the_replacement() -> None:
    with refused(NotOfferedError):
        check_name("TrainingInput")
