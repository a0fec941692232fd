"""Training in an image of Transformers. Serving is left out: its name names the replacement."""

from pai_sdk.compat.left_out import SERVING, names_left_out
from pai_sdk.huggingface.estimator import HuggingFaceEstimator

__all__ = ["HuggingFaceEstimator"]

__getattr__ = names_left_out(__name__, ("HuggingFaceModel",), SERVING)
