"""alipai's classes for ModelScope: left out. The names can be imported, and their use names the replacement."""

from pai_sdk.compat.left_out import names_left_out

__getattr__ = names_left_out(
    __name__,
    ("ModelScopeEstimator", "ModelScopeModel"),
    "give any image to Estimator: Estimator(image_uri=retrieve('ModelScope', 'latest').image_uri, …), "
    "or an image with PyTorch and requirements=['modelscope']",
)
