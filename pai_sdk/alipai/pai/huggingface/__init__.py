"""Training in an image of Transformers. Serving is left out: its name names the replacement."""

from pai_sdk.alipai.pai.huggingface.estimator import HuggingFaceEstimator
from pai_sdk.alipai.unsupported import SERVING, unsupported_names

__all__ = ["HuggingFaceEstimator"]

__getattr__ = unsupported_names(__name__, ("HuggingFaceModel",), SERVING)
