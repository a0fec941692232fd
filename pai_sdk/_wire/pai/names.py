"""Names of variables and channels. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pai_sdk.errors import Problem

PACKAGE_CHANNEL = "pai_sdk"
"""The input channel that has the package itself."""

PACKAGE_PREFIX = 'export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}${PAI_INPUT_PAI_SDK:-/ml/input/data/pai_sdk}"; '
"""What precedes the command of such a job: the channel comes after the PYTHONPATH of the image and of the user."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_CONTRACT_VARIABLE = re.compile(
    r"PAI_(?:TRAINING_JOB_ID|INSTANCE_NAME|WORKING_DIR|CONFIG_DIR|USER_ARGS|HPS(?:_.*)?|(?:INPUT|OUTPUT)_.*)",
    re.DOTALL,
)


def variable_name(name: str) -> str:
    """Returns the part of the name of a variable for a channel or a hyperparameter."""
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())


def name_problems(names: Iterable[str], where: str) -> list[Problem]:
    """Returns the problems of names of channels or hyperparameters that cannot be folders and variables."""
    problems: list[Problem] = []
    first_with: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            hint = "letters, digits, '_', '-' and '.', no digit first"
            problems.append(Problem(f"{where}[{name!r}]", "is not a valid name", hint))
            continue
        variable = variable_name(name)
        other = first_with.setdefault(variable, name)
        if other != name:
            problem = f"maps to the same variable as {other!r} ({variable})"
            problems.append(Problem(f"{where}[{name!r}]", problem, "rename one"))
    return problems


def is_contract_variable(variable: str) -> bool:
    """Returns True for an environment variable that the job contract sets, so that a request must not."""
    return _CONTRACT_VARIABLE.fullmatch(variable) is not None
