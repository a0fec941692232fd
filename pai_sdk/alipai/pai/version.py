"""The version, under the path that code written for alipai imports."""

from pai_sdk._core.version import __version__ as VERSION

__all__ = ["VERSION"]
