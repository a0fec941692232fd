"""Training in an image of Transformers. Serving is left out: its name names the replacement."""

from pai_sdk.compat.left_out import SERVING, unsupported_names
from pai_sdk.huggingface.estimator import HuggingFaceEstimator

__all__ = ["HuggingFaceEstimator"]

__getattr__ = unsupported_names(__name__, ("HuggingFaceModel",), SERVING)
