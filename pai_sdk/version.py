"""The version, under the path that code written for alipai imports."""

from pai_sdk.base.version import __version__ as VERSION

__all__ = ["VERSION"]
