"""The table of experiments, which are named groups of jobs."""

from __future__ import annotations

import re
import secrets
import string
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from pai_sdk._data.storage.uri import OssUri
from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import ExperimentLabel, ExperimentRow, Job
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.requests import experiment_of
from pai_sdk.errors import InvalidInputError

ORDERS: Mapping[str, InstrumentedAttribute[Any]] = {
    "GmtCreateTime": ExperimentRow.created_at,
    "GmtModifiedTime": ExperimentRow.modified_at,
    "Name": ExperimentRow.name,
    "ExperimentId": ExperimentRow.id,
}
"""Columns by which a list of experiments can be sorted."""

_ID_ALPHABET = string.ascii_lowercase + string.digits
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_MAX_URI_LENGTH = 4096
_MAX_LABEL_BYTES = 128


@dataclass(frozen=True)
class ExperimentQuery:
    """The query of ListExperiment. None and empty mean: any."""

    name: str | None = None  # a part of the name; the complete name with `is_exact`
    is_exact: bool = False
    workspace_id: str | None = None
    workspaces: Collection[str] | None = None  # that the user can see; None: all
    labels: Mapping[str, str] = field(default_factory=dict)
    order_by: tuple[tuple[str, bool], ...] = (("GmtCreateTime", True),)  # keys of ORDERS; True: descending
    offset: int = 0
    limit: int = 10


class ExperimentTable:
    """All experiments, each in a workspace. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        name: str,
        *,
        workspace_id: str,
        bucket: str,
        accessibility: str,
        artifact_uri: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Creates an experiment and returns its id. Without `artifact_uri`, artifacts are stored in `bucket`."""
        _check_name(name)
        _check_labels(labels or {})
        now = time.time()
        experiment_id = "exp-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(16))
        folder = _artifact_folder(artifact_uri or f"oss://{bucket}/pai/experiments/{experiment_id}/")
        with self._database.write() as session:
            _refuse_duplicate(session, name, workspace_id)
            session.add(
                ExperimentRow(
                    id=experiment_id,
                    workspace_id=workspace_id,
                    name=name,
                    accessibility=accessibility,
                    artifact_uri=folder,
                    created_at=now,
                    modified_at=now,
                    labels=[_label(key, value, now) for key, value in (labels or {}).items()],
                )
            )
        return experiment_id

    def get(self, experiment_id: str) -> ExperimentRow:
        """Returns an experiment with its labels; raises WireError if there is none."""
        with self._database.read() as session:
            return _existing(session, experiment_id)

    def require_visible(self, experiment_id: str, principal: Principal, right: Right) -> None:
        """Raises 404 if a user is no member of the workspace of an experiment, and 403 if they lack the right."""
        with self._database.read() as session:
            workspace_id = _existing(session, experiment_id, principal).workspace_id
        principal.require_in(workspace_id, right)

    def find(self, query: ExperimentQuery) -> tuple[list[ExperimentRow], int]:
        """Returns a page of the matching experiments, and their total number."""
        conditions: list[ColumnElement[bool]] = []
        if query.workspaces is not None:
            conditions.append(ExperimentRow.workspace_id.in_(query.workspaces))
        if query.workspace_id:
            conditions.append(ExperimentRow.workspace_id == query.workspace_id)
        if query.name and query.is_exact:
            conditions.append(ExperimentRow.name == query.name)
        elif query.name:
            conditions.append(ExperimentRow.name.contains(query.name, autoescape=True))
        for key, value in query.labels.items():
            same = (ExperimentLabel.key == key, ExperimentLabel.value == value)
            conditions.append(ExperimentRow.number.in_(select(ExperimentLabel.experiment).where(*same)))
        order = [ORDERS[name].desc() if down else ORDERS[name].asc() for name, down in query.order_by]
        # The unique number last: pages by offset need a total order.
        newest_first = query.order_by[0][1]
        last = ExperimentRow.number.desc() if newest_first else ExperimentRow.number.asc()
        page = (
            select(ExperimentRow).where(*conditions).order_by(*order, last).limit(query.limit).offset(query.offset)
        )
        with self._database.read() as session:
            total = session.scalar(select(func.count()).select_from(ExperimentRow).where(*conditions)) or 0
            return list(session.scalars(page)), total

    def update(self, experiment_id: str, *, name: str | None = None, accessibility: str | None = None) -> None:
        """Changes an experiment; None keeps a value. Raises WireError for an invalid or existing name."""
        with self._database.write() as session:
            experiment = _existing(session, experiment_id)
            if name is not None and name != experiment.name:
                _check_name(name)
                _refuse_duplicate(session, name, experiment.workspace_id)
                experiment.name = name
            if accessibility is not None:
                experiment.accessibility = accessibility
            experiment.modified_at = time.time()

    def delete(self, experiment_id: str) -> None:
        """Deletes an experiment, but not its jobs and their outputs."""
        with self._database.write() as session:
            number = _existing(session, experiment_id).number
            session.execute(delete(ExperimentRow).where(ExperimentRow.number == number))

    def set_labels(self, experiment_id: str, labels: Mapping[str, str]) -> None:
        """Adds labels, or replaces those of the same key."""
        _check_labels(labels)
        now = time.time()
        with self._database.write() as session:
            experiment = _existing(session, experiment_id)
            existing = {label.key: label for label in experiment.labels}
            for key, value in labels.items():
                if key in existing:
                    existing[key].value, existing[key].modified_at = value, now
                else:
                    experiment.labels.append(_label(key, value, now))
            experiment.modified_at = now

    def delete_label(self, experiment_id: str, key: str) -> None:
        """Deletes a label; a missing one is ignored."""
        with self._database.write() as session:
            experiment = _existing(session, experiment_id)
            mine = (ExperimentLabel.experiment == experiment.number, ExperimentLabel.key == key)
            session.execute(delete(ExperimentLabel).where(*mine))
            experiment.modified_at = time.time()


def experiment_names(session: Session, jobs: Iterable[Job]) -> dict[str, str]:
    """Returns the names of the experiments of these jobs, by id; deleted experiments are left out."""
    ids = {experiment for job in jobs if (experiment := experiment_of(job.request))}
    if not ids:
        return {}
    rows = session.execute(select(ExperimentRow.id, ExperimentRow.name).where(ExperimentRow.id.in_(ids)))
    return {row.id: row.name for row in rows}


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid_parameter(
            f"Name: {name[:100]!r} is not valid; use letters, digits, '_' and '-' after a letter; maximum 63."
        )


def _check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not key or any(len(text.encode()) > _MAX_LABEL_BYTES or set(text) & set("=,") for text in (key, value)):
            raise invalid_parameter(
                f"Labels: key or value of {key[:60]!r} is not valid; maximum {_MAX_LABEL_BYTES} bytes each, "
                "without '=' and ','."
            )


def _artifact_folder(uri: str) -> str:
    if len(uri) > _MAX_URI_LENGTH:
        raise invalid_parameter(f"ArtifactUri: is longer than {_MAX_URI_LENGTH} characters.")
    try:
        OssUri.parse(uri)
    except InvalidInputError as error:
        raise invalid_parameter(f"ArtifactUri: {error}") from error
    return uri


def _refuse_duplicate(session: Session, name: str, workspace_id: str) -> None:
    same = (ExperimentRow.workspace_id == workspace_id, ExperimentRow.name == name)
    if session.scalar(select(ExperimentRow.id).where(*same)) is not None:
        raise WireError(409, "EXPERIMENT_ALREADY_EXISTS", f"The experiment {name!r} already exists.")


def _existing(session: Session, experiment_id: str, principal: Principal | None = None) -> ExperimentRow:
    """Returns the experiment; raises 404 also for one that the user cannot see."""
    experiment = session.scalar(select(ExperimentRow).where(ExperimentRow.id == experiment_id))
    if experiment is None or (principal and not principal.has_right_in(experiment.workspace_id, "read")):
        raise WireError(404, "EXPERIMENT_NOT_FOUND", f"There is no experiment {experiment_id[:100]!r} here.")
    return experiment


def _label(key: str, value: str, now: float) -> ExperimentLabel:
    return ExperimentLabel(key=key, value=value, created_at=now, modified_at=now)
