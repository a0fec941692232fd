"""Training in an image of ModelScope. Serving is left out: its name names the replacement."""

from pai_sdk.compat.left_out import SERVING, names_left_out
from pai_sdk.modelscope.estimator import ModelScopeEstimator

__all__ = ["ModelScopeEstimator"]

__getattr__ = names_left_out(__name__, ("ModelScopeModel",), SERVING)
