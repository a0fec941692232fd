"""Options of the Ray executor, set by `--executor-option name=value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pai_sdk._core.names.hints import nearest
from pai_sdk.errors import InvalidInputError, Problem

_ADDRESS = re.compile(r"auto|(ray://)?[^\s/:@]+:[0-9]{1,5}|(ray://)?\[[0-9a-fA-F:]+\]:[0-9]{1,5}")
_STRATEGIES = ("SPREAD", "STRICT_SPREAD", "PACK", "STRICT_PACK")


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """How a service uses its Ray cluster.

    Attributes:
        address: `auto`: the cluster of the Ray node on this machine; `host:port`: the same cluster, by the address
            of its head; `ray://host:port`: a remote cluster, by its Ray Client server.
        cpus_per_instance: CPUs of an instance whose job sets none.
        placement: how the instances of a job are placed on nodes; one of Ray's four strategies.
        node_folder: the folder of a node in which jobs run; by default one in its folder for temporary files.
    """

    address: str = "auto"
    cpus_per_instance: float = 1.0
    placement: str = "SPREAD"
    node_folder: str = ""

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> RayOptions:
        """Parses the options; reports all unknown options and invalid values at once."""
        names = [part.name for part in fields(cls)]
        problems: list[Problem] = []
        parsed: dict[str, Any] = dict(values)
        for name in values.keys() - set(names):
            near = nearest(name, names)
            hint = f"did you mean {near[0]}?" if near else f"available: {', '.join(names)}"
            problems.append(Problem(f"executor option {name!r}", "is not an option of the executor 'ray'", hint))
        if "address" in values and not _ADDRESS.fullmatch(values["address"]):
            problems.append(_value_problem("address", values, "write auto, host:port or ray://host:port"))
        if "placement" in values and values["placement"] not in _STRATEGIES:
            problems.append(_value_problem("placement", values, f"one of {', '.join(_STRATEGIES)}"))
        if "node_folder" in values and not values["node_folder"].startswith("/"):
            problems.append(_value_problem("node_folder", values, "write an absolute path"))
        if "cpus_per_instance" in values:
            try:
                parsed["cpus_per_instance"] = float(values["cpus_per_instance"])
            except ValueError:
                parsed["cpus_per_instance"] = -1.0
            if not 0 <= parsed["cpus_per_instance"] < 1e6:
                problems.append(_value_problem("cpus_per_instance", values, "write 4 or 0.5"))
        if problems:
            raise InvalidInputError(sorted(problems, key=lambda problem: problem.where))
        return cls(**parsed)


def _value_problem(name: str, values: Mapping[str, str], hint: str) -> Problem:
    return Problem(f"executor option {name!r}", f"{values[name][:80]!r} cannot be used", hint)
