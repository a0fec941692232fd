"""The names of `pai_sdk.jobs`, under the module name that code written for alipai imports."""

# The stub of pai_sdk.jobs has names only.
from pai_sdk._client.job import __all__ as __all__  # type: ignore[attr-defined]
from pai_sdk._client.job import __getattr__ as __getattr__  # type: ignore[attr-defined]
