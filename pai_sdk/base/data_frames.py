"""Imports pandas, which is not installed with the package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pai_sdk.errors import MissingExtraError

__all__ = ["import_pandas"]


def import_pandas() -> Any:
    """Returns the module pandas.

    Raises:
        MissingExtraError: it is not installed.

    Example:
        >>> import_pandas().DataFrame({"loss": [0.5]}).shape
        (1, 1)
    """
    try:
        return import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("a data frame needs pandas: pip install pandas", extra="pandas") from error
