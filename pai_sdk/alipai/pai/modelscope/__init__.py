"""Training in an image of ModelScope. Serving is left out: its name names the replacement."""

from pai_sdk.alipai.pai.modelscope.estimator import ModelScopeEstimator
from pai_sdk.alipai.unsupported import SERVING, unsupported_names

__all__ = ["ModelScopeEstimator"]

__getattr__ = unsupported_names(__name__, ("ModelScopeModel",), SERVING)
