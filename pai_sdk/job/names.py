"""How the names of channels and hyperparameters become names of variables. Standard library only."""

from __future__ import annotations

import re

__all__ = ["variable_name"]


def variable_name(name: str) -> str:
    """The part of a variable's name that comes from a channel or a hyperparameter.

    Example:
        >>> variable_name("train-data.v2")
        'TRAIN_DATA_V2'
    """
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())
