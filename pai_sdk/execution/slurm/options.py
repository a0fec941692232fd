"""Options of the executor, as `--executor-option name=value` gives them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from pai_sdk.base.hints import nearest
from pai_sdk.errors import InvalidInputError, Problem

__all__ = ["SlurmOptions"]

# What the names of Slurm look like; `partition` and `constraint` may be expressions with several of them.
_VALUE = re.compile(r"[A-Za-z0-9_.@%+:,|&\[\]*()][A-Za-z0-9_.@%+:,|&\[\]*()-]{0,199}")
_CPUS = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What a service is told about its Slurm cluster. An empty text leaves the choice to the cluster.

    Attributes:
        account: who is charged.
        partition: where jobs run; several with commas.
        qos: their quality of service.
        reservation: a reservation that they may use.
        constraint: features that their nodes must have.
        gpu_type: the kind of GPU, such as `a100`.
        cpus_per_instance: CPUs of an instance whose job does not say how many it needs.
        python: the Python that supervises jobs, and that they use, on every node; by default that of the service.

    Example:
        >>> SlurmOptions.parse({"partition": "gpu"}).cpus_per_instance
        '1'
    """

    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    gpu_type: str = ""
    cpus_per_instance: str = "1"
    python: str = field(default_factory=lambda: sys.executable)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SlurmOptions:
        """Read options.

        Raises:
            InvalidInputError: there is no such option, or its value cannot be used; all of it is listed.
        """
        names = [part.name for part in fields(cls)]
        problems: list[Problem] = []
        for name, value in sorted(given.items()):
            where = f"executor option {name!r}"
            if name not in names:
                near = nearest(name, names)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
                problems.append(Problem(where, "is not known to the executor 'slurm'", hint))
            elif hint := _wrong(name, value):
                problems.append(Problem(where, f"{value[:80]!r} cannot be used", hint))
        if problems:
            raise InvalidInputError(problems)
        return cls(**given)

    def arguments(self) -> list[str]:
        """The arguments of `sbatch` that are the same for all jobs."""
        named = ("account", "partition", "qos", "reservation", "constraint")
        return [f"--{name}={value}" for name in named if (value := getattr(self, name))]


def _wrong(name: str, value: str) -> str:
    """A hint how to write the value of an option; empty if it can be used."""
    if name == "python":
        return "" if value.startswith("/") and value.isprintable() else "write the absolute path of an interpreter"
    if name == "cpus_per_instance":
        return "" if _CPUS.fullmatch(value) else "write a whole number from 1"
    return "" if _VALUE.fullmatch(value) else "write a name that the cluster knows"
