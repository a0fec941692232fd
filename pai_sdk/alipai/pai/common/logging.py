"""alipai's helpers for logging: of these, `get_logger` is here. The use of another name names the replacement."""

from logging import getLogger as get_logger

from pai_sdk.alipai.unsupported import unsupported_module

__all__ = ["get_logger"]
__path__, __getattr__ = unsupported_module(__name__)
