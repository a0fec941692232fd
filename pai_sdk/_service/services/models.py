"""The registered models of the service, and their versions."""

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

from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import ModelRow, ModelVersionRow
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.models import ModelFields, ModelVersionFields

MODEL_COLUMNS: Mapping[str, InstrumentedAttribute[Any]] = {
    "task": ModelRow.task,
    "domain": ModelRow.domain,
    "origin": ModelRow.origin,
    "model_type": ModelRow.type,
}
"""The searchable fields of `ModelFields`, and their columns."""

_ROW_FIELDS = {"labels", "model_name", "version_name", "workspace_id"}
_ID_ALPHABET = string.ascii_lowercase + string.digits
_NAME = re.compile(r"[\w.-]{1,127}")
_NUMBERED = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_MAX_LABELS = 100
_MAX_LABEL_BYTES = 128


@dataclass(frozen=True)
class ModelQuery:
    """The query of ListModels. None and empty match everything."""

    name: str | None = None  # a part of the name; in double quotes, the complete name
    workspace_id: str | None = None
    workspaces: Collection[str] | None = None  # only models in one of these
    fields: Mapping[str, str | None] = field(default_factory=dict)  # by names of `MODEL_COLUMNS`
    labels: Mapping[str, str] = field(default_factory=dict)
    offset: int = 0
    limit: int = 10
    newest_first: bool = True


class ModelRegistry:
    """All registered models, each in a workspace. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- models -------------------------------------------------------------------------------------------

    def create(self, name: str, *, workspace_id: str, fields: ModelFields, labels: Mapping[str, str]) -> str:
        """Registers a model without a version; returns its id."""
        _check_name(name, "ModelName")
        _check_labels(labels)
        now = time.time()
        model_id = "model-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(16))
        with self._database.write() as session:
            same = (ModelRow.workspace_id == workspace_id, ModelRow.name == name)
            if session.scalar(select(ModelRow.id).where(*same)) is not None:
                raise WireError(409, "MODEL_ALREADY_EXISTS", f"The model {name!r} already exists.")
            row = ModelRow(
                id=model_id,
                workspace_id=workspace_id,
                name=name,
                details={},
                labels=dict(labels),
                created_at=now,
                modified_at=now,
            )
            _set_fields(row, fields)
            session.add(row)
        return model_id

    def get(self, model_id: str) -> tuple[ModelRow, ModelVersionRow | None]:
        """Returns a model and its newest version."""
        with self._database.read() as session:
            model = _existing(session, model_id)
            return model, _newest_versions(session, [model]).get(model.number)

    def require_visible(self, model_id: str, principal: Principal, right: Right) -> None:
        """Checks that a user has a right in the workspace of a model; 404 for non-members."""
        with self._database.read() as session:
            workspace_id = _existing(session, model_id, principal).workspace_id
        principal.require_in(workspace_id, right)

    def find(self, query: ModelQuery) -> tuple[list[tuple[ModelRow, ModelVersionRow | None]], int]:
        """Returns a page of matching models, each with its newest version, and the total count."""
        _check_labels(query.labels)
        conditions: list[ColumnElement[bool]] = [
            MODEL_COLUMNS[name] == value for name, value in query.fields.items() if value
        ]
        if query.workspaces is not None:
            conditions.append(ModelRow.workspace_id.in_(query.workspaces))
        if query.workspace_id:
            conditions.append(ModelRow.workspace_id == query.workspace_id)
        name = query.name or ""
        if len(name) > 2 and name[0] == name[-1] == '"':
            conditions.append(ModelRow.name == name[1:-1])
        elif name:
            conditions.append(ModelRow.name.contains(name, autoescape=True))
        conditions += [ModelRow.labels[key].as_string() == value for key, value in query.labels.items()]
        order = ModelRow.number.desc() if query.newest_first else ModelRow.number.asc()
        page = select(ModelRow).where(*conditions).order_by(order).limit(query.limit).offset(query.offset)
        with self._database.read() as session:
            total = session.scalar(select(func.count()).select_from(ModelRow).where(*conditions)) or 0
            models = list(session.scalars(page))
            newest = _newest_versions(session, models)
            return [(model, newest.get(model.number)) for model in models], total

    def update(self, model_id: str, fields: ModelFields) -> None:
        """Changes fields of a model; None leaves a field unchanged."""
        with self._database.write() as session:
            model = _existing(session, model_id)
            _set_fields(model, fields)
            model.modified_at = time.time()

    def delete(self, model_id: str) -> None:
        """Deletes a model with all its versions. Their files stay."""
        with self._database.write() as session:
            number = _existing(session, model_id).number
            session.execute(delete(ModelRow).where(ModelRow.number == number))

    # ---- versions -----------------------------------------------------------------------------------------

    def create_version(
        self, model_id: str, name: str | None, *, fields: ModelVersionFields, labels: Mapping[str, str]
    ) -> str:
        """Registers a version and returns its name; the default is `0.1.0`, then the next after the highest."""
        _check_labels(labels)
        now = time.time()
        with self._database.write() as session:
            model = _existing(session, model_id)
            names = list(
                session.scalars(select(ModelVersionRow.name).where(ModelVersionRow.model == model.number))
            )
            name = name or _next_version(names)
            _check_name(name, "VersionName")
            if name in names:
                raise WireError(409, "MODEL_VERSION_ALREADY_EXISTS", f"The version {name!r} already exists.")
            session.add(
                ModelVersionRow(
                    model=model.number,
                    name=name,
                    details=_details(fields),
                    labels=dict(labels),
                    created_at=now,
                    modified_at=now,
                )
            )
        return name

    def get_version(self, model_id: str, name: str) -> tuple[ModelRow, ModelVersionRow]:
        """Returns a version and its model."""
        with self._database.read() as session:
            model = _existing(session, model_id)
            return model, _existing_version(session, model, name)

    def list_versions(
        self, model_id: str, *, name: str | None, page_number: int, page_size: int
    ) -> tuple[ModelRow, list[ModelVersionRow], int]:
        """Returns a page of a model's versions, the newest first, and the total count."""
        with self._database.read() as session:
            model = _existing(session, model_id)
            conditions = [ModelVersionRow.model == model.number]
            if name:
                conditions.append(ModelVersionRow.name == name)
            page = select(ModelVersionRow).where(*conditions).order_by(ModelVersionRow.number.desc())
            total = session.scalar(select(func.count()).select_from(ModelVersionRow).where(*conditions)) or 0
            rows = session.scalars(page.limit(page_size).offset((page_number - 1) * page_size))
            return model, list(rows), total

    def update_version(self, model_id: str, name: str, fields: ModelVersionFields) -> None:
        """Changes fields of a version; None leaves a field unchanged."""
        with self._database.write() as session:
            version = _existing_version(session, _existing(session, model_id), name)
            version.details = {**version.details, **_details(fields)}
            version.modified_at = time.time()

    def delete_version(self, model_id: str, name: str) -> None:
        """Deletes a version. Its files stay."""
        with self._database.write() as session:
            session.delete(_existing_version(session, _existing(session, model_id), name))

    # ---- labels -------------------------------------------------------------------------------------------

    def change_labels(
        self, model_id: str, version: str | None, *, added: Mapping[str, str], removed: Iterable[str] = ()
    ) -> None:
        """Adds, replaces and deletes labels of a model, or of one of its versions."""
        with self._database.write() as session:
            model = _existing(session, model_id)
            row = model if version is None else _existing_version(session, model, version)
            removed_keys = set(removed)
            labels = {key: value for key, value in row.labels.items() if key not in removed_keys} | dict(added)
            _check_labels(labels)
            row.labels, row.modified_at = labels, time.time()


def _set_fields(row: ModelRow, fields: ModelFields) -> None:
    for name, column in MODEL_COLUMNS.items():
        if (value := getattr(fields, name)) is not None:
            setattr(row, column.key, value)
    row.details = {**row.details, **_details(fields)}


def _details(fields: ModelFields | ModelVersionFields) -> dict[str, Any]:
    """Returns the fields that have no column of their own, by the names of the API."""
    return fields.model_dump(by_alias=True, exclude_none=True, exclude={*MODEL_COLUMNS, *_ROW_FIELDS})


def _next_version(names: Iterable[str]) -> str:
    """Returns the version after the highest of these, compared as numbers; other names do not count."""
    numbers = [tuple(map(int, match.groups())) for name in names if (match := _NUMBERED.fullmatch(name))]
    major, minor, _ = max(numbers, default=(0, 0, 0))
    return f"{major}.{minor + 1}.0"


def _newest_versions(session: Session, models: Iterable[ModelRow]) -> dict[int, ModelVersionRow]:
    """Returns the newest version of each model that has one, by the model's number."""
    numbers = [model.number for model in models]
    newest = (
        select(func.max(ModelVersionRow.number))
        .where(ModelVersionRow.model.in_(numbers))
        .group_by(ModelVersionRow.model)
    )
    rows = session.scalars(select(ModelVersionRow).where(ModelVersionRow.number.in_(newest)))
    return {version.model: version for version in rows}


def _check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid_parameter(
            f"{where}: {name[:100]!r} is not a valid name; use letters, digits, '_', '-', '.'; maximum 127."
        )


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > _MAX_LABELS:
        raise invalid_parameter(f"Labels: there are {len(labels)}; {_MAX_LABELS} are allowed.")
    for key, value in labels.items():
        if not key or any(
            len(text.encode()) > _MAX_LABEL_BYTES or set(text) & set('=,"\\') for text in (key, value)
        ):
            raise invalid_parameter(
                f"Labels: key or value of {key[:60]!r} is not valid; maximum {_MAX_LABEL_BYTES} bytes each, "
                "without '=', ',', quotes and backslashes."
            )


def _existing(session: Session, model_id: str, principal: Principal | None = None) -> ModelRow:
    """Returns the model; raises the error of a missing one if the user cannot see it."""
    model = session.scalar(select(ModelRow).where(ModelRow.id == model_id))
    if model is None or (principal and not principal.has_right_in(model.workspace_id, "read")):
        raise WireError(404, "MODEL_NOT_FOUND", f"There is no model {model_id[:100]!r} here.")
    return model


def _existing_version(session: Session, model: ModelRow, name: str) -> ModelVersionRow:
    same = (ModelVersionRow.model == model.number, ModelVersionRow.name == name)
    row = session.scalar(select(ModelVersionRow).where(*same))
    if row is None:
        raise WireError(404, "MODEL_VERSION_NOT_FOUND", f"The model {model.name!r} has no version {name[:100]!r}.")
    return row
