"""Training in an image of ModelScope. Serving is left out: its name names the replacement."""

from pai_sdk.compat.left_out import SERVING, unsupported_names
from pai_sdk.modelscope.estimator import ModelScopeEstimator

__all__ = ["ModelScopeEstimator"]

__getattr__ = unsupported_names(__name__, ("ModelScopeModel",), SERVING)
