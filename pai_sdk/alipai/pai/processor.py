"""`Processor`, where users of alipai look for it."""

from pai_sdk._client.submit.processor import Processor

__all__ = ["Processor"]
