"""Options of local jobs that no service has: stored as tags in the request's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pai_sdk._core.names.hints import nearest
from pai_sdk.errors import InvalidInputError, Problem

_PREFIX = "pai-sdk.local."
_USER = re.compile(r"root|[0-9]+(:[0-9]+)?")


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """Options of jobs with `instance_type="local"`. Other backends treat them as labels without effect.

    Attributes:
        user: the user of the containers: `uid:gid`, or `root` (files are given back to you at the end). By
            default, you.
        shared_memory: the size of /dev/shm, such as `2GiB`; by default half of the memory.
        gpu_ids: these GPUs, divided among the instances.
        preempt_after_s: send SIGTERM to the command after these seconds and start it again, once: a drill for spot
            instances.
        grace_s: seconds between SIGTERM and SIGKILL.
        network: an existing network to attach the containers to, such as `host`.

    Example:
        >>> LocalOptions(preempt_after_s=30, gpu_ids=("0", "1")).settings()
        {'tags': {'pai-sdk.local.gpu_ids': '0,1', 'pai-sdk.local.preempt_after_s': '30'}}
    """

    user: str | None = None
    shared_memory: str | None = None
    gpu_ids: tuple[str, ...] = ()
    preempt_after_s: int = 0
    grace_s: int = 10
    network: str | None = None

    def settings(self) -> dict[str, Any]:
        """Returns the value for the parameter `settings` of Processor and Estimator."""
        tags = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if value != part.default:
                tags[_PREFIX + part.name] = ",".join(value) if isinstance(value, tuple) else str(value)
        return {"tags": tags}

    @classmethod
    def of_tags(cls, tags: Mapping[str, str] | None) -> LocalOptions:
        """Parses the options from the tags of a request.

        Raises:
            InvalidInputError: unknown options or invalid values; all of them are listed.
        """
        problems: list[Problem] = []
        parsed: dict[str, Any] = {}
        kinds = {part.name: type(part.default) for part in fields(cls)}
        for tag, text in (tags or {}).items():
            name = tag.removeprefix(_PREFIX)
            if name == tag:
                continue
            where = f"settings.tags[{tag!r}]"
            if name not in kinds:
                near = nearest(name, kinds)
                hint = f"did you mean {_PREFIX}{near[0]}?" if near else f"available: {', '.join(sorted(kinds))}"
                problems.append(Problem(where, "is not an option of local runs", hint))
            elif name == "user" and not _USER.fullmatch(text):
                problems.append(Problem(where, f"{text!r} is not a user", "write uid:gid, or root"))
            elif kinds[name] is int and not text.isdecimal():
                problems.append(Problem(where, f"expected an integer of seconds, got {text!r}"))
            elif kinds[name] is int:
                parsed[name] = int(text)
            elif kinds[name] is tuple:
                parsed[name] = tuple(part.strip() for part in text.split(",") if part.strip())
            else:
                parsed[name] = text
        if problems:
            raise InvalidInputError(problems)
        return cls(**parsed)
