"""The registered algorithms of the service, and their versions."""

from __future__ import annotations

import re
import secrets
import string
import time
from collections.abc import Collection

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session, defer

from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Algorithm, AlgorithmVersion
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.pai.spec import AlgorithmSpec

PROVIDER = "local"
"""The provider of algorithms on this service, which has no accounts."""

_ID_ALPHABET = string.ascii_lowercase + string.digits
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class AlgorithmRegistry:
    """All registered algorithms, each in a workspace. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- algorithms ---------------------------------------------------------------------------------------

    def create(self, name: str, *, workspace_id: str, display_name: str | None, description: str | None) -> str:
        """Registers an algorithm without a version; returns its id."""
        _check_name(name, "AlgorithmName")
        now = time.time()
        algorithm_id = "algo-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(16))
        with self._database.write() as session:
            same = (Algorithm.workspace_id == workspace_id, Algorithm.provider == PROVIDER, Algorithm.name == name)
            if session.scalar(select(Algorithm.id).where(*same)) is not None:
                raise WireError(409, "ALGORITHM_ALREADY_EXISTS", f"The algorithm {name!r} already exists.")
            session.add(
                Algorithm(
                    id=algorithm_id,
                    workspace_id=workspace_id,
                    provider=PROVIDER,
                    name=name,
                    display_name=display_name,
                    description=description,
                    created_at=now,
                    modified_at=now,
                )
            )
        return algorithm_id

    def get(self, algorithm_id: str) -> Algorithm:
        """Returns an algorithm."""
        with self._database.read() as session:
            return _existing(session, algorithm_id)

    def require_visible(self, algorithm_id: str, principal: Principal, right: Right) -> None:
        """Checks that a user has a right in the workspace of an algorithm; 404 for non-members."""
        with self._database.read() as session:
            workspace_id = _existing(session, algorithm_id, principal).workspace_id
        principal.require_in(workspace_id, right)

    def find(
        self,
        *,
        algorithm_id: str | None,
        name: str | None,
        provider: str | None,
        workspace_id: str | None,
        workspaces: Collection[str] | None = None,
        page_number: int,
        page_size: int,
    ) -> tuple[list[Algorithm], int]:
        """Returns a page of matching algorithms, the newest first, and the total count."""
        conditions: list[ColumnElement[bool]] = []
        if workspaces is not None:
            conditions.append(Algorithm.workspace_id.in_(workspaces))
        for column, value in (
            (Algorithm.id, algorithm_id),
            (Algorithm.provider, provider),
            (Algorithm.workspace_id, workspace_id),
        ):
            if value:
                conditions.append(column == value)
        # A part of the name, as in lists of jobs.
        if name:
            conditions.append(Algorithm.name.contains(name, autoescape=True))
        page = select(Algorithm).where(*conditions).order_by(Algorithm.number.desc())
        with self._database.read() as session:
            total = session.scalar(select(func.count()).select_from(Algorithm).where(*conditions)) or 0
            rows = session.scalars(page.limit(page_size).offset((page_number - 1) * page_size))
            return list(rows), total

    def update(self, algorithm_id: str, *, display_name: str | None, description: str | None) -> None:
        """Changes display name and description; None leaves a value unchanged."""
        with self._database.write() as session:
            algorithm = _existing(session, algorithm_id)
            if display_name is not None:
                algorithm.display_name = display_name
            if description is not None:
                algorithm.description = description
            algorithm.modified_at = time.time()

    def delete(self, algorithm_id: str) -> None:
        """Deletes an algorithm with all its versions. Jobs have a copy of their spec."""
        with self._database.write() as session:
            _existing(session, algorithm_id)
            session.execute(delete(Algorithm).where(Algorithm.id == algorithm_id))

    # ---- versions -----------------------------------------------------------------------------------------

    def create_version(self, algorithm_id: str, version: str, spec: AlgorithmSpec) -> None:
        """Registers a version."""
        _check_name(version, "AlgorithmVersion")
        now = time.time()
        with self._database.write() as session:
            _existing(session, algorithm_id)
            if _version(session, algorithm_id, version) is not None:
                raise WireError(
                    409, "ALGORITHM_VERSION_ALREADY_EXISTS", f"The version {version!r} already exists."
                )
            session.add(
                AlgorithmVersion(
                    algorithm_id=algorithm_id,
                    version=version,
                    spec=spec.to_wire(),
                    created_at=now,
                    modified_at=now,
                )
            )

    def get_version(self, algorithm_id: str, version: str) -> tuple[Algorithm, AlgorithmVersion]:
        """Returns a version and its algorithm."""
        with self._database.read() as session:
            algorithm = _existing(session, algorithm_id)
            return algorithm, _existing_version(session, algorithm, version)

    def list_versions(
        self, algorithm_id: str, *, page_number: int, page_size: int
    ) -> tuple[Algorithm, list[AlgorithmVersion], int]:
        """Returns a page of an algorithm's versions, the newest first, and the total count."""
        is_version = AlgorithmVersion.algorithm_id == algorithm_id
        page = (
            select(AlgorithmVersion)
            .options(defer(AlgorithmVersion.spec))
            .where(is_version)
            .order_by(AlgorithmVersion.number.desc())
        )
        with self._database.read() as session:
            algorithm = _existing(session, algorithm_id)
            total = session.scalar(select(func.count()).select_from(AlgorithmVersion).where(is_version)) or 0
            rows = session.scalars(page.limit(page_size).offset((page_number - 1) * page_size))
            return algorithm, list(rows), total

    def get_by_name(
        self, name: str, version: str | None, provider: str | None, *, workspace_id: str
    ) -> tuple[Algorithm, AlgorithmVersion]:
        """Returns the algorithm of exactly that name; without a version, the version that was created last."""
        conditions = [Algorithm.name == name, Algorithm.workspace_id == workspace_id]
        if provider:
            conditions.append(Algorithm.provider == provider)
        with self._database.read() as session:
            algorithm = session.scalar(select(Algorithm).where(*conditions))
            if algorithm is None:
                whose = f" of provider {provider[:60]!r}" if provider else ""
                raise WireError(404, "ALGORITHM_NOT_FOUND", f"There is no algorithm {name[:100]!r}{whose} here.")
            if version:
                return algorithm, _existing_version(session, algorithm, version)
            newest = select(AlgorithmVersion).where(AlgorithmVersion.algorithm_id == algorithm.id)
            last = session.scalar(newest.order_by(AlgorithmVersion.number.desc()).limit(1))
        if last is None:
            raise WireError(404, "ALGORITHM_VERSION_NOT_FOUND", f"The algorithm {name!r} has no version yet.")
        return algorithm, last

    def update_version(self, algorithm_id: str, version: str, spec: AlgorithmSpec) -> None:
        """Replaces the spec of a version; existing jobs keep the old one."""
        with self._database.write() as session:
            row = _existing_version(session, _existing(session, algorithm_id), version)
            row.spec, row.modified_at = spec.to_wire(), time.time()

    def delete_version(self, algorithm_id: str, version: str) -> None:
        """Deletes a version."""
        with self._database.write() as session:
            session.delete(_existing_version(session, _existing(session, algorithm_id), version))


def _check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid_parameter(
            f"{where}: {name[:100]!r} is not a valid name; use letters, digits, '_', '-', '.'; maximum 100."
        )


def _existing(session: Session, algorithm_id: str, principal: Principal | None = None) -> Algorithm:
    """Returns the algorithm; raises the error of a missing one if the user cannot see it."""
    algorithm = session.scalar(select(Algorithm).where(Algorithm.id == algorithm_id))
    if algorithm is None or (principal and not principal.has_right_in(algorithm.workspace_id, "read")):
        raise WireError(404, "ALGORITHM_NOT_FOUND", f"There is no algorithm {algorithm_id[:100]!r} here.")
    return algorithm


def _version(session: Session, algorithm_id: str, version: str) -> AlgorithmVersion | None:
    return session.scalar(
        select(AlgorithmVersion).where(
            AlgorithmVersion.algorithm_id == algorithm_id, AlgorithmVersion.version == version
        )
    )


def _existing_version(session: Session, algorithm: Algorithm, version: str) -> AlgorithmVersion:
    row = _version(session, algorithm.id, version)
    if row is None:
        raise WireError(
            404,
            "ALGORITHM_VERSION_NOT_FOUND",
            f"The algorithm {algorithm.name!r} has no version {version[:100]!r}.",
        )
    return row
