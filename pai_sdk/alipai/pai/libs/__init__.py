"""alipai's clients of services: left out. Names can be imported, and their use names the replacement."""

from pai_sdk.alipai.unsupported import unsupported_module

__path__, __getattr__ = unsupported_module(__name__)
