"""alipai's model of Transformers: left out. The name can be imported; its use names the replacement."""

from pai_sdk.compat.left_out import SERVING, names_left_out

__getattr__ = names_left_out(__name__, ("HuggingFaceModel",), SERVING)
