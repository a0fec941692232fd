"""The names of `pai_sdk.job`, under the module name that code written for alipai imports."""

from pai_sdk.job import __all__ as __all__
from pai_sdk.job import __getattr__ as __getattr__
