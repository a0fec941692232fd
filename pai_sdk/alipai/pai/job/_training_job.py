"""The names of `pai_sdk.job`, under the module name that code written for alipai imports."""

# The stub of the package has names only.
from pai_sdk.alipai.pai.job import __all__ as __all__  # type: ignore[attr-defined]
from pai_sdk.alipai.pai.job import __getattr__ as __getattr__  # type: ignore[attr-defined]
