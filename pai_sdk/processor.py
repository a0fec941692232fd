"""`Processor`, where users of alipai look for it."""

from pai_sdk.submit.processor import Processor

__all__ = ["Processor"]
