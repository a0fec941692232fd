"""Registered models and the recipes that train them. Serving is left out: its names name the replacement."""

from pai_sdk._client.model.recipe import ModelRecipe, ModelRecipeType, ModelTrainingRecipe
from pai_sdk._client.model.registered_model import RegisteredModel
from pai_sdk.alipai.unsupported import SERVING, unsupported_names

__all__ = ["ModelRecipe", "ModelRecipeType", "ModelTrainingRecipe", "RegisteredModel"]

__path__: list[str] = []  # so that Python looks for alipai's `model._model_recipe`, whose error names this module

__getattr__ = unsupported_names(
    __name__,
    (
        "InferenceSpec",
        "Model",
        "ModelBase",
        "ModelFormat",
        "NfsStorageConfig",
        "NodeStorageConfig",
        "OssStorageConfig",
        "RawStorageConfig",
        "ResourceConfig",
        "SharedMemoryConfig",
        "StorageConfigBase",
        "container_serving_spec",
    ),
    SERVING,
)
