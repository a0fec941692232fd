"""alipai's classes for Hugging Face: left out. The names can be imported, and their use names the replacement."""

from pai_sdk.compat.left_out import names_left_out

__getattr__ = names_left_out(
    __name__,
    ("HuggingFaceEstimator", "HuggingFaceModel"),
    "give any image to Estimator: Estimator(image_uri=retrieve('Transformers', 'latest').image_uri, …), "
    "or an image with PyTorch and requirements=['transformers']",
)
