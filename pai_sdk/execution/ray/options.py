"""Options of the executor, as `--executor-option name=value` gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pai_sdk.base.hints import nearest
from pai_sdk.errors import InvalidInputError, Problem

__all__ = ["RayOptions"]

_ADDRESS = re.compile(r"auto|(ray://)?[^\s/:@]+:[0-9]{1,5}|(ray://)?\[[0-9a-fA-F:]+\]:[0-9]{1,5}")
_STRATEGIES = ("SPREAD", "STRICT_SPREAD", "PACK", "STRICT_PACK")


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """What a service is told about its Ray cluster.

    Attributes:
        address: `auto`: the cluster of the Ray node on this machine; `host:port`: the same, by the address of its
            head; `ray://host:port`: a cluster elsewhere, by its Ray Client server.
        cpus_per_instance: CPUs of an instance whose job does not say how many it needs.
        placement: how the instances of a job are placed on nodes; one of Ray's four strategies.
        node_folder: the folder of a node in which jobs run; one in its folder for temporary files otherwise.

    Example:
        >>> RayOptions.parse({"address": "ray://head:10001"}).cpus_per_instance
        1.0
    """

    address: str = "auto"
    cpus_per_instance: float = 1.0
    placement: str = "SPREAD"
    node_folder: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> RayOptions:
        """Read options.

        Raises:
            InvalidInputError: there is no such option, or its value cannot be used; all of it is listed.
        """
        names = [part.name for part in fields(cls)]
        problems: list[Problem] = []
        found: dict[str, Any] = dict(given)
        for name in given.keys() - set(names):
            near = nearest(name, names)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            problems.append(Problem(f"executor option {name!r}", "is not known to the executor 'ray'", hint))
        if "address" in given and not _ADDRESS.fullmatch(given["address"]):
            problems.append(_wrong("address", given, "write auto, host:port or ray://host:port"))
        if "placement" in given and given["placement"] not in _STRATEGIES:
            problems.append(_wrong("placement", given, f"one of {', '.join(_STRATEGIES)}"))
        if "node_folder" in given and not given["node_folder"].startswith("/"):
            problems.append(_wrong("node_folder", given, "write an absolute path"))
        if "cpus_per_instance" in given:
            try:
                found["cpus_per_instance"] = float(given["cpus_per_instance"])
            except ValueError:
                found["cpus_per_instance"] = -1.0
            if not 0 <= found["cpus_per_instance"] < 1e6:
                problems.append(_wrong("cpus_per_instance", given, "write 4 or 0.5"))
        if problems:
            raise InvalidInputError(sorted(problems, key=lambda problem: problem.where))
        return cls(**found)


def _wrong(name: str, given: Mapping[str, str], hint: str) -> Problem:
    return Problem(f"executor option {name!r}", f"{given[name][:80]!r} cannot be used", hint)
