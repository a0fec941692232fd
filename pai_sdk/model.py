"""alipai's models and their deployment: left out. The names can be imported; their use names the replacement."""

from pai_sdk.compat.left_out import SERVING, names_left_out

__getattr__ = names_left_out(
    __name__,
    (
        "InferenceSpec",
        "Model",
        "ModelBase",
        "ModelFormat",
        "ModelRecipe",
        "ModelRecipeType",
        "ModelTrainingRecipe",
        "NfsStorageConfig",
        "NodeStorageConfig",
        "OssStorageConfig",
        "RawStorageConfig",
        "RegisteredModel",
        "ResourceConfig",
        "SharedMemoryConfig",
        "StorageConfigBase",
        "container_serving_spec",
    ),
    f"{SERVING}. To train by a recipe, give its algorithm to AlgorithmEstimator(…, algorithm_provider='pai')",
)
