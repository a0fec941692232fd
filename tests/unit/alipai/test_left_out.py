"""What alipai has and pai_sdk leaves out can be imported; its use says what replaces it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from pai_sdk.huggingface import HuggingFaceModel
from pai_sdk.job import LocalTrainingJob
from pai_sdk.model import InferenceSpec, Model, container_serving_spec
from pai_sdk.modelscope.model import ModelScopeModel
from pai_sdk.predictor import AsyncPredictor, Predictor
from pai_sdk.serializers import JsonSerializer, SerializerBase

from pai_sdk import Estimator, Session
from pai_sdk.errors import NotOfferedError, PaiError
from tests.support.messages import refused


@pytest.mark.parametrize(
    ("use", "named", "instead"),
    [
        (lambda: Estimator("img", "true").deploy("service", instance_type="ecs.x"), "Estimator.deploy", "eascmd"),
        (lambda: Estimator("img", "true").create_model({}), "Estimator.create_model", "model_data()"),
        (lambda: Model(model_data="oss://b/m/"), "pai_sdk.model.Model", "model_data()"),
        (lambda: Model.deploy, "pai_sdk.model.Model.deploy", "PAI-EAS"),
        (lambda: InferenceSpec(processor="p"), "pai_sdk.model.InferenceSpec", "PAI-EAS"),
        (lambda: container_serving_spec(command="x"), "pai_sdk.model.container_serving_spec", "PAI-EAS"),
        (lambda: Predictor("service"), "pai_sdk.predictor.Predictor", "requests.post"),
        (lambda: AsyncPredictor("service"), "pai_sdk.predictor.AsyncPredictor", "requests.post"),
        (lambda: JsonSerializer(), "pai_sdk.serializers.JsonSerializer", "json.dumps"),
        (lambda: HuggingFaceModel(), "pai_sdk.huggingface.HuggingFaceModel", "PAI-EAS"),
        (lambda: ModelScopeModel(), "pai_sdk.modelscope.model.ModelScopeModel", "PAI-EAS"),
        (lambda: LocalTrainingJob(), "pai_sdk.job.LocalTrainingJob", "fit() returns it"),
    ],
)
def test_the_first_use_names_the_replacement(use: Any, named: str, instead: str) -> None:
    with pytest.raises(NotOfferedError) as caught:
        use()
    assert isinstance(caught.value, PaiError)
    assert isinstance(caught.value, NotImplementedError)
    assert caught.value.name == named
    assert str(caught.value).startswith(f"{named} is not part of pai_sdk: ")
    assert instead in caught.value.instead


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pai_sdk.pipeline", "PipelineStep"),
        ("pai_sdk.dsw", "mount"),
        ("pai_sdk.dataset", "list_common_datasets"),
        ("pai_sdk.tracking", "log_lineage"),
        ("pai_sdk.libs", "models"),
        ("pai_sdk.common.docker_utils", "run_container"),
        ("pai_sdk.common.git_utils", "git_clone_repo"),
        ("pai_sdk.common.yaml_utils", "safe_load"),
        ("pai_sdk.common.logging", "set_log_level_debug"),
        ("pai_sdk.common.utils", "parse_oss_uri"),
        ("pai_sdk.session", "load_default_config_file"),
    ],
)
def test_a_module_that_is_left_out_names_the_replacement(module: str, name: str) -> None:
    found = getattr(import_module(module), name)
    with refused(NotOfferedError):
        found()
    if module not in ("pai_sdk.pipeline", "pai_sdk.session"):  # which have modules of their own
        with refused(ModuleNotFoundError) as caught:  # so that `except ImportError` of a program finds it
            import_module(f"{module}.inner.models")
        assert caught.value.name == module


def test_a_class_can_be_derived_and_raises_when_it_is_used() -> None:
    class Own(SerializerBase):  # type: ignore[misc, valid-type]
        def serialize(self, data: Any) -> bytes:
            return bytes(data)

    with refused(NotOfferedError):
        Own()


def test_a_name_that_alipai_does_not_have_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="Modle"):
        from pai_sdk.model import Modle  # noqa: F401


def test_parts_of_alipais_session_name_the_replacement() -> None:
    session = Session("cn-x", "1", access_key_id="id", access_key_secret="hush")
    with refused(AttributeError):
        session.training_job_api  # noqa: B018
    assert not hasattr(session, "nothing_at_all")


@pytest.mark.parametrize("module", ["pai_sdk", "pai_sdk.estimator", "pai_sdk.job"])
def test_a_name_of_another_sdk_is_no_attribute_and_its_import_says_what_replaces_it(module: str) -> None:
    found = import_module(module)
    assert not hasattr(found, "HyperparameterTuner")
    assert getattr(found, "HyperparameterTuner", None) is None
    with refused(AttributeError):
        _ = found.HyperparameterTuner
    with refused(NotOfferedError):
        exec(f"from {module} import HyperparameterTuner")


def test_no_stand_in_makes_hasattr_raise() -> None:
    assert not hasattr(Predictor, "predict")
    with pytest.raises(NotOfferedError):
        _ = Predictor.predict
