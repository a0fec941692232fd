"""alipai's model of Transformers: left out. The name can be imported; its use names the replacement."""

from pai_sdk.compat.left_out import SERVING, unsupported_names

__getattr__ = unsupported_names(__name__, ("HuggingFaceModel",), SERVING)
