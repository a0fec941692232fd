"""File systems that a job mounts: NAS and CPFS, named by their parts. Standard library only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

from pai_sdk._core.default_session import session_or_default
from pai_sdk._core.names.hints import wrong_type
from pai_sdk.errors import InvalidInputError, Problem


class FileSystemInputBase(ABC):
    """A file system as an input or output of a job. A subclass of your own returns its URI from `to_input_uri`."""

    @abstractmethod
    def to_input_uri(self, region_id: str | None = None) -> str:
        """The URI that the service mounts.

        Args:
            region_id: the region it is in; the default session's otherwise.
        """


@dataclass(frozen=True)
class FileSystemInput(FileSystemInputBase):
    """A folder of a NAS file system.

    Attributes:
        file_system_id: the id of the file system, such as `0a1b2c3d4e`.
        directory_path: the folder in it; all of it otherwise.

    Raises:
        InvalidInputError: a part is empty, or cannot be in a URI.

    Example:
        >>> FileSystemInput("0a1b2c3d4e", "/data/train/").to_input_uri("cn-hangzhou")
        'nas://0a1b2c3d4e.cn-hangzhou/data/train/'
    """

    file_system_id: str
    directory_path: str | None = None

    def __post_init__(self) -> None:
        _check(self, names=("file_system_id",))

    def to_input_uri(self, region_id: str | None = None) -> str:
        """`nas://<file system>.<region>/<folder>`."""
        return f"nas://{self.file_system_id}.{_region(region_id)}/{(self.directory_path or '').lstrip('/')}"


@dataclass(frozen=True)
class CpfsFileSystemInput(FileSystemInputBase):
    """A folder that a CPFS file system exports.

    Attributes:
        file_system_id: the id of the file system, such as `cpfs-0a1b2c3d`.
        protocol_service_id: the id of its protocol service, such as `ptc-0a1b2c3d`.
        export_id: the id of the export, such as `exp-0a1b2c3d`.

    Raises:
        InvalidInputError: a part is empty, or cannot be in a URI.

    Example:
        >>> CpfsFileSystemInput("cpfs-1", "ptc-2", "exp-3").to_input_uri("cn-hangzhou")
        'cpfs://cpfs-1.cn-hangzhou/ptc-2/exp-3/'
    """

    file_system_id: str
    protocol_service_id: str
    export_id: str

    def __post_init__(self) -> None:
        _check(self, names=("file_system_id", "protocol_service_id", "export_id"))

    def to_input_uri(self, region_id: str | None = None) -> str:
        """`cpfs://<file system>.<region>/<protocol service>/<export>/`."""
        where = f"{self.file_system_id}.{_region(region_id)}"
        return f"cpfs://{where}/{self.protocol_service_id}/{self.export_id}/"


def _check(source: FileSystemInput | CpfsFileSystemInput, *, names: tuple[str, ...]) -> None:
    problems = []
    for part in fields(source):
        value = getattr(source, part.name)
        if value is None and part.name not in names:
            continue
        if not isinstance(value, str):
            problems.append(wrong_type(part.name, value, "a string"))
        elif part.name in names and (not value.strip() or set("/:? \n") & {*value}):
            problems.append(Problem(part.name, f"{value!r} is not an id", "such as 'cpfs-0a1b2c3d'"))
    if problems:
        raise InvalidInputError(problems)


def _region(region_id: str | None) -> str:
    if region_id is None:
        settings = session_or_default().settings
        settings.require("region_id")
        region_id = settings.region_id or ""
    return region_id
