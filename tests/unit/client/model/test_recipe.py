"""Recipes of registered models: what is read, what a job gets, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import AlgorithmEstimator, Session
from pai_sdk._client.job import ModelRecipeSpec
from pai_sdk._client.model import ModelRecipe, ModelRecipeType, ModelTrainingRecipe, RegisteredModel
from pai_sdk.errors import InvalidInputError, NotOfferedError
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer

ALGORITHM: dict[str, Any] = {
    "Image": "python:3.11",
    "Command": ["sh", "-c", "python train.py"],
    "JobType": "PyTorchJob",
    "CodeDir": {"LocationType": "oss", "LocationValue": {"Bucket": "recipes", "Key": "digits/code.tar.gz"}},
    "InputChannels": [{"Name": "model", "Required": True}, {"Name": "train"}, {"Name": "validation"}],
    "OutputChannels": [{"Name": "model", "Required": True}],
    "HyperParameters": [
        {"Name": "lr", "Type": "Float", "DefaultValue": "0.1"},
        {"Name": "epochs", "Type": "Int", "DefaultValue": "1"},
    ],
    "SupportedInstanceTypes": ["ecs.gn6i", "ecs.c6.large"],
}
RECIPE: dict[str, Any] = {
    "AlgorithmSpec": ALGORITHM,
    "HyperParameters": [{"Name": "epochs", "Value": "2"}],
    "InputChannels": [
        {"Name": "train", "InputUri": "oss://recipes/digits/train/"},
        {"Name": "validation", "DatasetId": "d-0123456789abcd", "VersionName": "v2"},
    ],
    "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 2, "InstanceSpec": {"CPU": "4"}},
    "Scheduler": {"MaxRunningTimeInSeconds": 3600},
    "Requirements": ["numpy"],
    "Environments": {"MODE": "fast"},
}
VERSIONS: dict[str, dict[str, Any]] = {
    "0.1.0": {"TrainingSpec": RECIPE, "EvaluationSpec": {"AlgorithmName": "judge", "InputChannels": None}},
    "0.2.0": {"TrainingSpec": {"LoRA": RECIPE, "full": {**RECIPE, "HyperParameters": None}}},
    "0.3.0": {},
}


@pytest.fixture
def service() -> Iterator[ScriptedServer]:
    """A service with the model `digits` in three versions, and the algorithm `judge`."""

    def answer(asked: Asked) -> Reply:
        parts = asked.path.removeprefix("/api/v1/").split("/")
        if parts == ["models"]:
            wanted, provider = asked.query.get("ModelName", ""), asked.query.get("Provider")
            fits = '"digits"' in (wanted or '"digits"') and provider in (None, "pai")
            shown = {"VersionName": "0.2.0", "Uri": "oss://models/digits/", **VERSIONS["0.2.0"]}
            model = {"ModelId": "m-1", "ModelName": "digits", "Provider": provider, "LatestVersion": shown}
            return Reply({"Models": [model] if fits else [], "TotalCount": int(fits)})
        if parts[0] == "models" and len(parts) == 3:
            return Reply({"Versions": [{"VersionName": name} for name in VERSIONS], "TotalCount": 3})
        if parts[0] == "models" and parts[-1] in VERSIONS:
            return Reply({"VersionName": parts[-1], "Uri": "oss://models/digits/", **VERSIONS[parts[-1]]})
        if parts == ["algorithms"]:
            return Reply({"Algorithms": [{"AlgorithmId": "a", "AlgorithmName": "judge"}], "TotalCount": 1})
        if parts[0] == "algorithms" and parts[-1] == "versions":
            return Reply({"AlgorithmVersions": [{"AlgorithmVersion": "v7"}], "TotalCount": 1})
        if parts[0] == "algorithms":
            return Reply({"AlgorithmVersion": "v7", "AlgorithmSpec": ALGORITHM})
        return Reply({"Code": "MODEL_VERSION_NOT_FOUND", "Message": "no such version"}, 404)

    server = ScriptedServer()
    server.answer = answer
    yield server
    server.close()


@pytest.fixture
def session(service: ScriptedServer) -> Session:
    return Session(
        "cn-hangzhou",
        "7",
        oss_bucket_name="models",
        endpoint=service.endpoint,
        aiworkspace_endpoint=service.endpoint,
        access_key_id="LTAI-example",
        access_key_secret="a-secret",
    )


def request_of(recipe: ModelRecipe, inputs: Any = None) -> dict[str, Any]:
    wire: dict[str, Any] = recipe.plan(inputs).request.to_wire()
    return wire


def sources(request: dict[str, Any]) -> dict[str, str]:
    return {one["Name"]: one.get("InputUri") or one["DatasetId"] for one in request["InputChannels"]}


def values(request: dict[str, Any]) -> dict[str, str]:
    return {one["Name"]: one["Value"] for one in request["HyperParameters"]}


def test_a_recipe_has_the_values_of_its_model_version(session: Session) -> None:
    recipe = RegisteredModel("digits", "0.1.0", session=session).training_recipe()
    assert isinstance(recipe, ModelTrainingRecipe)
    assert (recipe.model_uri, recipe.source_dir) == ("oss://models/digits/", "oss://recipes/digits/code.tar.gz")
    assert recipe.hyperparameters == {"lr": "0.1", "epochs": "2"}
    assert (recipe.instance_type, recipe.instance_count, recipe.max_run_time) == ("ecs.c6.large", 2, 3600)
    assert recipe.default_inputs == {
        "train": "oss://recipes/digits/train/",
        "validation": "d-0123456789abcd/v2",
    }
    assert [one.name for one in recipe.hyperparameter_definitions] == ["lr", "epochs"]
    assert recipe.supported_instance_types == ["ecs.gn6i", "ecs.c6.large"]


def test_its_job_is_that_of_the_recipe(session: Session) -> None:
    request = request_of(ModelTrainingRecipe("digits", "0.1.0", session=session))
    assert {name: request["AlgorithmSpec"][name] for name in ("Image", "Command", "CodeDir")} == {
        name: ALGORITHM[name] for name in ("Image", "Command", "CodeDir")
    }
    assert sources(request) == {
        "model": "oss://models/digits/",
        "train": "oss://recipes/digits/train/",
        "validation": "d-0123456789abcd",
    }
    assert values(request) == {"lr": "0.1", "epochs": "2"}
    assert request["ComputeResource"] == {"EcsSpec": "ecs.c6.large", "EcsCount": 2}
    assert request["Scheduler"] == {"MaxRunningTimeInSeconds": 3600}
    assert (request["PythonRequirements"], request["Environments"]) == (["numpy"], {"MODE": "fast"})
    assert request["TrainingJobName"].startswith("digits-training-")


def test_what_is_given_wins(session: Session, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)")
    recipe = ModelTrainingRecipe(
        "digits",
        "0.1.0",
        model_uri="oss://models/mine/",
        source_dir=str(tmp_path),
        command="python main.py",
        image_uri="mine:1",
        hyperparameters={"lr": 0.5},
        instance_type="ecs.gn6i",
        instance_count=1,
        environments={"MODE": "slow"},
        session=session,
    )
    plan = recipe.plan({"train": "oss://models/own/"})
    request = plan.request.to_wire()
    spec = request["AlgorithmSpec"]
    assert (spec["Image"], spec["Command"]) == ("mine:1", ["sh", "-c", "python main.py"])
    assert spec["CodeDir"]["LocationValue"]["Bucket"] == "models"  # our code, which is uploaded
    assert [upload.tree.root for upload in plan.uploads] == [tmp_path]
    # Data of one's own is not mixed with the recipe's.
    assert sources(request) == {"model": "oss://models/mine/", "train": "oss://models/own/"}
    assert values(request) == {"lr": "0.5", "epochs": "2"}
    assert request["ComputeResource"] == {"EcsSpec": "ecs.gn6i", "EcsCount": 1}
    assert request["Environments"] == {"MODE": "slow"}


def test_a_quota_takes_the_size_of_the_recipe(session: Session) -> None:
    recipe = ModelTrainingRecipe("digits", "0.1.0", resource_id="quota-1", session=session)
    assert request_of(recipe)["ComputeResource"] == {
        "ResourceId": "quota-1",
        "InstanceSpec": {"CPU": "4"},
        "InstanceCount": 1,
    }


def test_the_first_of_several_recipes_is_taken_and_named(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        first = ModelTrainingRecipe("digits", session=session)
    assert (first.model_version, first.hyperparameters) == ("0.2.0", {"lr": "0.1", "epochs": "2"})
    assert "LoRA, full; 'LoRA' is used" in caplog.text
    full = ModelTrainingRecipe("digits", method="full", session=session)
    assert full.hyperparameters == {"lr": "0.1", "epochs": "1"}


def test_an_algorithm_that_is_named_is_sent_by_name(session: Session) -> None:
    recipe = RegisteredModel("digits", "0.1.0", session=session).model_recipe(ModelRecipeType.EVALUATION)
    request = request_of(recipe)
    assert (request["AlgorithmName"], request["AlgorithmVersion"]) == ("judge", "v7")
    assert "AlgorithmSpec" not in request
    assert request["ComputeResource"]["EcsSpec"] == "ecs.gn6i"  # the algorithm's first
    assert request["TrainingJobName"].startswith("digits-evaluation-")


def test_an_estimator_has_the_same_values(session: Session) -> None:
    model = RegisteredModel("digits", "0.1.0", session=session)
    estimator = model.get_estimator(hyperparameters={"epochs": 9}, base_job_name="mine")
    assert isinstance(estimator, AlgorithmEstimator)
    request = estimator.plan({**model.get_estimator_inputs(), "model": "oss://models/digits/"}).request.to_wire()
    assert values(request) == {"lr": "0.1", "epochs": "9"}
    assert sources(request)["train"] == "oss://recipes/digits/train/"
    assert request["ComputeResource"] == {"EcsSpec": "ecs.c6.large", "EcsCount": 2}
    assert request["TrainingJobName"].startswith("mine-")


def test_a_recipe_of_ones_own_needs_no_model(session: Session) -> None:
    recipe = ModelTrainingRecipe(
        image_uri="mine:1",
        command=["train"],
        model_uri="oss://models/digits/",
        instance_type="ecs.c6.large",
        session=session,
    )
    request = request_of(recipe, {"train": "oss://models/own/"})
    assert sources(request) == {"model": "oss://models/digits/", "train": "oss://models/own/"}
    outputs = [channel["Name"] for channel in request["OutputChannels"]]
    assert outputs == ["model", "checkpoints", "tensorboard"]
    with refused(InvalidInputError, "image_uri", "command"):
        ModelTrainingRecipe(instance_type="ecs.c6.large", session=session).plan()


@pytest.mark.parametrize(
    ("parameters", "where"),
    [
        ({"model_name": "digts"}, "model_name"),
        ({"model_name": "x", "model_provider": "huggingface"}, "model_name"),
        ({"model_version": "0.9.0"}, "model_version"),
        ({"model_version": "0.3.0"}, "model_name"),
        ({"method": "lora"}, "method"),
        ({"model_version": "0.1.0", "method": "LoRA"}, "method"),
        ({"hyperparameters": {"epoch": 3}}, "hyperparameters['epoch']"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(
    session: Session, parameters: dict[str, Any], where: str
) -> None:
    with refused(InvalidInputError, where):
        ModelTrainingRecipe(**{"model_name": "digits", "session": session, **parameters}).plan()


def test_alipais_other_names_of_parameters_are_accepted(session: Session) -> None:
    own = {"train": "oss://models/own/"}
    recipe = ModelTrainingRecipe("digits", "0.1.0", default_training_inputs=own, session=session)
    assert sources(request_of(recipe)) == {"model": "oss://models/digits/", **own}


def test_serving_stays_out_and_the_error_says_where_the_model_is(session: Session) -> None:
    model = RegisteredModel("digits", session=session)
    with refused(NotOfferedError):
        model.deploy(service_name="digits")
    with refused(NotOfferedError):
        model.training_recipe("full").deploy(service_name="digits")


def test_models_are_compared_by_their_version(session: Session) -> None:
    listed = {*RegisteredModel.list(session=session)}
    model = RegisteredModel("digits", session=session)
    assert listed == {model}
    assert repr(model) == "RegisteredModel('digits', '0.2.0')"
    assert {one.model_version for one in model.list_versions()} == set(VERSIONS)
    assert model != RegisteredModel("digits", "0.1.0", session=session)
    assert repr(RegisteredModel("digits", model_provider="pai", session=session)).endswith("model_provider='pai')")


def test_the_spec_can_be_read_alone(session: Session) -> None:
    spec = RegisteredModel("digits", "0.1.0", session=session).get_recipe_spec("training")
    assert isinstance(spec, ModelRecipeSpec)
    assert spec.inputs[1].source == "d-0123456789abcd/v2"
