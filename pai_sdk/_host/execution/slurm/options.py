"""Options of the Slurm executor, set by `--executor-option name=value`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from pai_sdk._core.names.hints import nearest
from pai_sdk.errors import InvalidInputError, Problem

# The syntax of Slurm names; `partition` and `constraint` can be expressions with several names.
_VALUE = re.compile(r"[A-Za-z0-9_.@%+:,|&\[\]*()][A-Za-z0-9_.@%+:,|&\[\]*()-]{0,199}")
_CPUS = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """How a service uses its Slurm cluster. An empty string leaves the choice to the cluster."""

    account: str = ""  # it is charged
    partition: str = ""  # separated by commas
    qos: str = ""  # quality of service
    reservation: str = ""  # one that jobs can use
    constraint: str = ""  # features that their nodes must have
    gpu_type: str = ""  # such as `a100`
    cpus_per_instance: str = "1"  # of an instance whose job sets none
    # it supervises jobs, and they use it, on every node
    python: str = field(default_factory=lambda: sys.executable)

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> SlurmOptions:
        """Parses the options; reports all unknown options and invalid values at once."""
        names = [part.name for part in fields(cls)]
        problems: list[Problem] = []
        for name, value in sorted(values.items()):
            where = f"executor option {name!r}"
            if name not in names:
                near = nearest(name, names)
                hint = f"did you mean {near[0]}?" if near else f"available: {', '.join(names)}"
                problems.append(Problem(where, "is not an option of the executor 'slurm'", hint))
            elif hint := _value_hint(name, value):
                problems.append(Problem(where, f"{value[:80]!r} cannot be used", hint))
        if problems:
            raise InvalidInputError(problems)
        return cls(**values)

    def arguments(self) -> list[str]:
        """Returns the arguments of `sbatch` that all jobs share."""
        names = ("account", "partition", "qos", "reservation", "constraint")
        return [f"--{name}={value}" for name in names if (value := getattr(self, name))]


def _value_hint(name: str, value: str) -> str:
    """Returns how to write the value of an option; empty if it is valid."""
    if name == "python":
        return "" if value.startswith("/") and value.isprintable() else "write the absolute path of an interpreter"
    if name == "cpus_per_instance":
        return "" if _CPUS.fullmatch(value) else "write a whole number from 1"
    return "" if _VALUE.fullmatch(value) else "write a name that the cluster knows"
