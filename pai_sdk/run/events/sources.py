"""One metric of several instances: which of them is meant by the plain name.

The rule, for curves, lists, comparisons, searches and the last values of jobs:

1. What was reported comes before what was found in logs.
2. Of that, process 0 comes first, then the other processes by their ranks.
3. Of one rank, the instances come by their roles (chief, master, worker, ps, evaluator), then by their numbers;
   those without a role, such as machines, come last, by their names.

The first one has the plain name. Standard library only.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["is_instance", "source_order"]

_ROLES = ("chief", "master", "worker", "ps", "evaluator")
_INSTANCE = re.compile(rf"(?:.+-)?({'|'.join(_ROLES)})-([0-9]{{1,9}})(?:\.log)?", re.DOTALL)


def is_instance(name: str) -> bool:
    """Returns True for the name of an instance of a job, as `report` puts it into the names of its files.

    Example:
        >>> is_instance("train129f212o89d-worker-0"), is_instance("spot-a")
        (True, False)
    """
    return "-" in name and _INSTANCE.fullmatch(name) is not None


def source_order(instance: str | None, rank: int | None = 0, *, is_from_log: bool = False) -> tuple[Any, ...]:
    """A key by which the sources of one metric are sorted; the first one has the plain name.

    Example:
        >>> sorted(["t-worker-10", "t-worker-9", "t-master-0", "spot-a"], key=source_order)
        ['t-master-0', 't-worker-9', 't-worker-10', 'spot-a']
    """
    found = _INSTANCE.fullmatch(instance or "")
    role = (_ROLES.index(found[1]), int(found[2])) if found else (len(_ROLES), 0)
    return is_from_log, max(rank or 0, 0), *role, instance or ""
