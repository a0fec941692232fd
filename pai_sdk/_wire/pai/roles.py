"""Roles and mounts: fields of a request that PAI's TrainingJob API lacks, and DLC jobs have.

The cloud's TrainingJob API takes neither. Executors of this package and local Docker do.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from pai_sdk._wire.pai.compute import InstanceSpec
from pai_sdk._wire.pai.numbers import Integer
from pai_sdk._wire.pai.secret_values import masked_arguments
from pai_sdk._wire.pai.wire import Sent

__all__ = ["CLONE_PREFIX", "Mount", "Role", "StartAfter", "mount_problems", "role_problems"]

CLONE_PREFIX = "code-source://"
"""Prefix of the URIs of mounts whose content is a clone of a registered repository; only services write them."""

_ROLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
_URI = re.compile(r"file:///[^/]|[a-z][a-z0-9+.-]*://[^/]")


class StartAfter(Sent):
    """A role that another one waits for: until `min_count` of its instances (all if None) are in `phase`."""

    role: str
    phase: str | None = None
    min_count: Integer | None = None


class Role(Sent):
    """Instances of a job that are alike. None in `image` and `command` means those of the job.

    Attributes:
        name: as users write it, such as `Worker` or `PS`; compared without case.
        restart_policy: what happens after an instance has ended; the executor's default if None.
        is_chief: whether the end of this role can decide about the job; one role at most.
        counts_for_success: whether the job succeeds only if this role does; decided by the job type if None.
        start_after: the roles that this one waits for.

    Example:
        >>> Role(name="Worker", count=2, command=["sh", "-c", "python train.py"]).count
        2
    """

    name: str
    count: Annotated[Integer, Field(ge=1)] = 1
    image: str | None = None
    command: list[str] | None = Field(default=None, min_length=1)
    ecs_spec: str | None = None
    instance_spec: InstanceSpec | None = None
    restart_policy: Literal["Always", "Never", "OnFailure", "ExitCode"] | None = None
    is_chief: bool | None = None
    counts_for_success: bool | None = None
    start_after: list[StartAfter] | None = None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked_arguments(value) if name == "command" and value else value

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _ROLE_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a role; use letters, digits and '-', a letter first")
        return name


class Mount(Sent):
    """A folder of a storage that every instance sees at an absolute path.

    Attributes:
        path: where instances see it, such as `/mnt/data`; `.` and repeated slashes are removed.
        uri: the folder, such as `oss://bucket/data/`.
        access: `RO`, or `RW` for a folder whose changes are stored.
        options: JSON text with options of the file system.

    Example:
        >>> Mount(path="/mnt/data/", uri="oss://bucket/data/").path
        '/mnt/data'
    """

    path: str
    uri: str
    access: Literal["RO", "RW"] = "RO"
    options: str | None = None

    @property
    def is_clone(self) -> bool:
        """Returns whether the folder is a clone of a repository."""
        return self.uri.startswith(CLONE_PREFIX)

    @property
    def is_saved(self) -> bool:
        """Returns whether changes of the job are stored."""
        return self.access == "RW" and not self.is_clone

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        parts = path.split("/")
        if not path.startswith("/") or ".." in parts or "\0" in path or not path.strip("/."):
            raise ValueError(f"{path!r} is not an absolute path below '/', or has '..' in it")
        return "/" + posixpath.normpath(path).lstrip("/")

    @field_validator("uri")
    @classmethod
    def _check_uri(cls, uri: str) -> str:
        if not _URI.match(uri):
            raise ValueError(f"{uri!r} is not a URI such as 'oss://bucket/folder/'")
        return uri


def role_problems(roles: Sequence[Role]) -> Iterator[str]:
    """Yields what is wrong with the roles of a job together: none, repeated names, chiefs, waits in a circle."""
    if not roles:
        yield "Roles is empty; leave it out for a job of identical instances"
    names = Counter(role.name.lower() for role in roles)
    yield from (f"role {name!r} is defined {count} times" for name, count in names.items() if count > 1)
    chiefs = [role.name for role in roles if role.is_chief]
    if len(chiefs) > 1:
        yield f"only one role can be the chief, not {' and '.join(chiefs)}"
    waits_for = {role.name.lower(): {each.role.lower() for each in role.start_after or ()} for role in roles}
    for name, targets in waits_for.items():
        yield from (
            f"role {name!r} waits for {other!r}, which is not a role" for other in sorted(targets - names.keys())
        )
    if circle := _waiting_forever(waits_for):
        yield f"roles wait for each other: {', '.join(circle)}"


def _waiting_forever(waits_for: dict[str, set[str]]) -> list[str]:
    """Returns the roles that can never start, in alphabetical order; roles that do not exist are ignored."""
    waiting = {name: targets & waits_for.keys() for name, targets in waits_for.items()}
    while ready := [name for name, targets in waiting.items() if not targets & waiting.keys()]:
        for name in ready:
            del waiting[name]
    return sorted(waiting)


def mount_problems(mounts: Sequence[Mount]) -> Iterator[str]:
    """Yields what is wrong with the mounts of a job together: two on one path."""
    paths = Counter(mount.path for mount in mounts)
    yield from (
        f"{count} mounts are at {path}; each needs a path of its own" for path, count in paths.items() if count > 1
    )
