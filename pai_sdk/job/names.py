"""How the names of channels and hyperparameters become names of variables. Standard library only."""

from __future__ import annotations

import re

__all__ = ["is_of_the_contract", "variable_name"]

_OF_THE_CONTRACT = re.compile(
    r"PAI_(?:TRAINING_JOB_ID|INSTANCE_NAME|WORKING_DIR|CONFIG_DIR|USER_ARGS|HPS(?:_.*)?|(?:INPUT|OUTPUT)_.*)",
    re.DOTALL,
)


def variable_name(name: str) -> str:
    """The part of a variable's name that comes from a channel or a hyperparameter.

    Example:
        >>> variable_name("train-data.v2")
        'TRAIN_DATA_V2'
    """
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())


def is_of_the_contract(variable: str) -> bool:
    """Whether the job contract sets that environment variable, so that nobody else may.

    Example:
        >>> is_of_the_contract("PAI_HPS_LR"), is_of_the_contract("PAI_REGION_ID")
        (True, False)
    """
    return _OF_THE_CONTRACT.fullmatch(variable) is not None
