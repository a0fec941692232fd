"""Names with a meaning: of variables, of instance types, of jobs. Standard library only."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["LOCAL_ID_PREFIX", "LOCAL_TYPES", "is_local_id", "is_of_the_contract", "variable_name"]

LOCAL_TYPES: Final = ("local", "local_gpu")
"""The instance types that mean Docker on this machine."""

LOCAL_ID_PREFIX: Final = "local-"
"""What the id of a job on this machine begins with."""

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
    """Whether the job contract sets that environment variable, so that a request must not.

    Example:
        >>> is_of_the_contract("PAI_HPS_LR"), is_of_the_contract("PAI_REGION_ID")
        (True, False)
    """
    return _OF_THE_CONTRACT.fullmatch(variable) is not None


def is_local_id(job_id: str) -> bool:
    """Whether the id is that of a job in Docker on this machine.

    Example:
        >>> is_local_id("local-08655612a521"), is_local_id("train129f212o89d")
        (True, False)
    """
    return job_id.startswith(LOCAL_ID_PREFIX)
