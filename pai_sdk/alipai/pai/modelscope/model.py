"""alipai's model of ModelScope: left out. The name can be imported; its use names the replacement."""

from pai_sdk.alipai.unsupported import SERVING, unsupported_names

__getattr__ = unsupported_names(__name__, ("ModelScopeModel",), SERVING)
