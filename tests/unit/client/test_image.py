"""Images are found by framework and version, in the catalogue of the service or in the one of the package."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk import Session
from pai_sdk._client.image import ImageInfo, ImageScope, _numbers, list_images, retrieve
from pai_sdk._wire.images import ImageRecord
from pai_sdk._wire.pai.public_images import public_images
from pai_sdk.alipai.pai.huggingface.estimator import HuggingFaceEstimator
from pai_sdk.alipai.pai.modelscope.estimator import ModelScopeEstimator
from pai_sdk.errors import ApiError, ImageLookupError, InvalidInputError, NotFoundError, ServerError
from tests.support.messages import refused


def record(uri: str, **labels: str) -> ImageRecord:
    pairs = [{"Key": f"system.{key}", "Value": value} for key, value in labels.items()]
    return ImageRecord.model_validate({"ImageUri": uri, "Name": uri.rpartition("/")[2], "Labels": pairs})


IMAGES = [
    record("r.example.com/pai/pytorch-training:2.7-gpu-py312-cu128-ubuntu24.04", chipType="GPU"),
    record("r.example.com/pai/pytorch-training:1.12PAI-gpu-py38-cu113-ubuntu20.04", chipType="GPU"),
    record("r.example.com/pai/pytorch-training:1.12.1-cpu-py39-ubuntu20.04"),
    record("r.example.com/pai/pytorch-training:1.8-cpu-py36-ubuntu18.04"),
    record(
        "r.example.com/pai/tensorflow-training:latest",
        **{"framework.TensorFlow": "2.11", "framework.PyTorch": "1.0", "pythonVersion": "3.9", "chipType": "CPU"},
    ),
    record("r.example.com/odd"),  # alipai crashes on it
]


class FakeSession:
    """A session whose service has these images, or refuses."""

    settings = SimpleNamespace(region_id="cn-shanghai")
    more: Sequence[ImageRecord] = ()

    def __init__(self, refusal: Exception | None = None) -> None:
        self.asked: list[list[str]] = []
        self._refusal = refusal

    def backend_for(self, instance_type: str | None, api: str | None = None) -> Any: ...

    @property
    def images(self) -> Any:
        def listed(*, labels: list[str]) -> Any:
            self.asked.append(labels)
            if self._refusal:
                raise self._refusal
            return iter([*IMAGES, *self.more])

        return SimpleNamespace(list=listed)


@pytest.fixture
def session() -> Any:
    return FakeSession()


def test_the_latest_is_that_with_the_highest_numbers(session: Any) -> None:
    assert retrieve("PyTorch", "latest", "GPU", session=session).framework_version == "2.7"
    assert retrieve("pytorch", framework_version="latest", session=session).framework_version == "1.12.1"
    assert session.asked[0] == ["system.official=true", "system.supported.dlc=true"]


def test_a_version_fits_those_that_begin_with_it(session: Any) -> None:
    assert retrieve("PyTorch", "1.12", session=session).image_uri.endswith(":1.12.1-cpu-py39-ubuntu20.04")
    assert retrieve("PyTorch", "1.12", "gpu", session=session).framework_version == "1.12PAI"
    assert retrieve("PyTorch", "1.8", accelerator_type=None, session=session).python_version == "3.6"


def test_labels_are_right_where_they_say_something(session: Any) -> None:
    (found,) = list_images("tensorflow", session)
    assert found == ImageInfo(
        image_name="tensorflow-training:latest",
        image_uri="r.example.com/pai/tensorflow-training:latest",
        framework_name="TensorFlow",
        image_scope=ImageScope.TRAINING,
        framework_version="2.11",
        accelerator_type="CPU",
        python_version="3.9",
    )


def test_what_is_not_there_is_an_error_that_lists_what_is(session: Any) -> None:
    with refused(ImageLookupError, "framework_version") as caught:
        retrieve("PyTorch", "3.1", session=session)
    assert isinstance(caught.value, RuntimeError)  # alipai raises that
    with refused(ImageLookupError, "framework_name"):
        retrieve("PyTroch", "latest", session=session)
    with refused(InvalidInputError, "accelerator_type"):
        retrieve("PyTorch", "latest", "TPU", session=session)
    with refused(InvalidInputError, "image_scope"):
        list_images("PyTorch", session, image_scope="trainings")


@pytest.mark.parametrize(
    "refusal",
    [
        NotFoundError("no such action", code="InvalidAction.NotFound", status_code=404),
        ApiError("not implemented", code="NotImplemented", status_code=501),
    ],
)
def test_a_service_without_a_catalogue_has_the_public_images_of_its_region(refusal: Exception) -> None:
    found = retrieve("XGBoost", "latest", session=FakeSession(refusal))  # type: ignore[arg-type]
    assert found.image_uri == (
        "registry.cn-shanghai.aliyuncs.com/pai-dlc/xgboost-training:1.6.0-cpu-py36-ubuntu18.04"
    )
    assert (found.framework_name, found.accelerator_type, found.python_version) == ("XGBoost", "CPU", "3.6")


@pytest.mark.parametrize("scope", [ImageScope.TRAINING, ImageScope.INFERENCE, ImageScope.DEVELOP])
@pytest.mark.parametrize(
    ("framework", "version", "accelerator", "uri"),
    [
        ("PyTorch", "latest", "CPU", "pytorch-training:1.12-cpu-py39-ubuntu20.04"),
        ("TensorFlow", "2.3", "gpu", "tensorflow-training:2.3-gpu-py36-cu101-ubuntu18.04"),
        ("XGBoost", "latest", None, "xgboost-training:1.6.0-cpu-py36-ubuntu18.04"),
        ("ModelScope", "latest", "CPU", "pai/modelscope:1.34.0-pytorch2.3.1-cpu-py311-ubuntu22.04"),
        ("modelscope", "1.31", "GPU", "pai/modelscope:1.31.0-pytorch2.8.0-gpu-py311-cu124-ubuntu22.04"),
        ("Transformers", "latest", "GPU", "docker.io/huggingface/transformers-pytorch-gpu:4.41.3"),
        ("transformers", "4.18", "CPU", "docker.io/huggingface/transformers-pytorch-cpu:4.18.0"),
    ],
)
def test_the_public_images_have_each_framework_for_each_purpose(
    framework: str, version: str, accelerator: str | None, uri: str, scope: str
) -> None:
    session: Any = FakeSession(NotFoundError("no such action", code="InvalidAction.NotFound", status_code=404))
    found = retrieve(framework, version, accelerator, scope, session)
    assert found.image_uri.endswith(uri)
    assert (found.image_scope, found.framework_name.lower()) == (scope, framework.lower())


def test_an_image_is_found_by_its_labels_where_no_repository_is_called_so() -> None:
    session: Any = FakeSession()
    session.more = [
        record(
            "r.example.com/pai/huggingface-training:4.31-gpu",
            **{"framework.PyTorch": "2.0", "framework.Transformers": "4.31.0", "chipType": "GPU"},
        )
    ]
    found = retrieve("Transformers", "latest", "GPU", session=session)
    assert found.image_uri == "r.example.com/pai/huggingface-training:4.31-gpu"
    assert (found.framework_name, found.framework_version) == ("Transformers", "4.31.0")
    assert retrieve("PyTorch", "latest", "GPU", session=session).framework_version == "2.7"


@pytest.mark.parametrize(
    ("kind", "parameter", "scope", "uri"),
    [
        (
            HuggingFaceEstimator,
            "transformers_version",
            "dlc",
            "docker.io/huggingface/transformers-pytorch-gpu:4.41.3",
        ),
        (
            ModelScopeEstimator,
            "modelscope_version",
            "dsw",
            "dsw-registry-vpc.cn-hangzhou.cr.aliyuncs.com/pai/modelscope:1.34.0-pytorch2.9.1-gpu-py311-cu124-ubuntu22.04",
        ),
    ],
)
def test_an_estimator_of_a_framework_has_the_image_of_the_version(
    kind: Any, parameter: str, scope: str, uri: str
) -> None:
    refusal = NotFoundError("no such action", code="InvalidAction.NotFound", status_code=404)
    catalogue: Any = FakeSession(refusal)
    catalogue.settings = SimpleNamespace(region_id="cn-hangzhou")
    newest = kind("python train.py", **{parameter: "latest"}, session=catalogue)
    assert newest.training_image_uri() == newest.describe().image == uri
    assert catalogue.asked[0][1] == f"system.supported.{scope}=true"
    session = Session("cn-hangzhou", "1", oss_bucket_name="models", access_key_id="a", access_key_secret="b")
    own = kind("python train.py", image_uri="mine:1", instance_type="ecs.c6.large", session=session)
    spec = own.plan().request.algorithm_spec
    assert spec is not None
    assert (spec.image, spec.command) == ("mine:1", ["sh", "-c", "python train.py"])
    with refused(InvalidInputError, parameter):
        kind("python train.py", instance_type="ecs.c6.large", session=session).plan()


def test_a_fault_of_the_service_is_no_lack_of_a_catalogue() -> None:
    with pytest.raises(ServerError):
        list_images("PyTorch", FakeSession(ServerError("broken", status_code=500)))  # type: ignore[arg-type]


def test_versions_are_compared_as_numbers() -> None:
    assert _numbers("1.12.2PAI") > _numbers("1.8PAI") > _numbers(None) == ()


def test_public_images_have_the_registry_of_the_region() -> None:
    uri = next(image.image_uri for image in public_images("cn-shanghai") if "xgboost" in image.name)
    assert uri == "registry.cn-shanghai.aliyuncs.com/pai-dlc/xgboost-training:1.6.0-cpu-py36-ubuntu18.04"
