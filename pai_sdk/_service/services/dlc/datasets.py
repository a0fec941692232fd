"""Data sets of a workspace, with versions and labels: jobs of DLC mount them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pai_sdk._service.identity.principal import LOCAL_USER, Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.problems import missing_error, refuse_problems
from pai_sdk._service.services.dlc.records import Kind, RecordQuery
from pai_sdk._service.state.dlc_models import RecordRow, RecordVersionRow
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.body import comma_list, received
from pai_sdk._wire.dlc.names import new_dataset_id
from pai_sdk._wire.dlc.resources.checks import page_problems
from pai_sdk._wire.dlc.times import wire_time
from pai_sdk._wire.workspace.checks import dataset_problems, label_problems
from pai_sdk._wire.workspace.datasets import (
    DatasetList,
    DatasetQuery,
    DatasetRecord,
    DatasetUpdate,
    DatasetVersion,
    DatasetVersionList,
    DatasetVersionQuery,
    DatasetVersionUpdate,
    NewDataset,
    NewDatasetVersion,
)
from pai_sdk._wire.workspace.labels import NewLabels, ResourceLabel
from pai_sdk.errors import Problem

_KIND: Kind = "data set"
_FIRST_VERSION = "v1"
_NO_LABELS = wire_names(labels=[])  # of bodies without any


def create_dataset(context: ServiceContext, principal: Principal, dataset: NewDataset) -> str:
    """Registers a data set with its first version; returns its id. Nothing is stored on a dry run."""
    refuse_problems(dataset_problems(dataset))
    workspace_id = context.workspace_for(principal, dataset.workspace_id)
    version = NewDatasetVersion(
        uri=dataset.uri,
        data_source_type=dataset.data_source_type,
        property_type=dataset.property_type,
        options=dataset.options,
        data_count=dataset.data_count,
        data_size=dataset.data_size,
        import_info=dataset.import_info,
        source_id=dataset.source_id,
        source_type=dataset.source_type,
        description=dataset.version_description,
        labels=dataset.version_labels,
    )
    dataset_id = new_dataset_id()
    if not dataset.dry_run:
        context.records.create(
            _KIND,
            dataset_id,
            dataset.to_wire("workspace_id", "dry_run", "version_description", "version_labels"),
            name=dataset.name or "",
            workspace_id=workspace_id,
            owner=principal.user,
            accessibility=dataset.accessibility,
            versions={_FIRST_VERSION: version.to_wire()},
        )
    return dataset_id


def read_dataset(context: ServiceContext, dataset_id: str) -> DatasetRecord:
    """Returns a data set with its latest version."""
    return _record(context, context.records.get(_KIND, dataset_id))


def list_datasets(context: ServiceContext, principal: Principal, query: DatasetQuery) -> DatasetList:
    """Returns a page of the data sets that a user can see."""
    refuse_problems(page_problems(query.page_number, query.page_size, query.order))
    selection = RecordQuery(
        _KIND,
        principal,
        workspace_id=query.workspace_id,
        name=query.name,
        ids=comma_list(query.dataset_ids),
        accessibility=query.accessibility,
        values=wire_names(
            data_source_type=comma_list(query.data_source_types),
            data_type=comma_list(query.data_types),
            property=comma_list(query.properties),
            source_type=comma_list(query.source_types),
            source_id=comma_list(query.source_id),
            provider=comma_list(query.provider),
            edition=comma_list(query.edition),
        ),
        sort_by=query.sort_by,
        order=query.order,
        page_number=query.page_number,
        page_size=query.page_size,
    )
    rows, total = context.records.find(selection)
    return DatasetList(datasets=[_record(context, row) for row in rows], total_count=total)


def update_dataset(context: ServiceContext, dataset_id: str, update: DatasetUpdate) -> None:
    """Changes fields of a data set."""
    refuse_problems(dataset_problems(update))
    changes = {name: value if value != "" else None for name, value in update.to_wire("name").items()}
    context.records.update(_KIND, dataset_id, changes, name=update.name, accessibility=update.accessibility)


def delete_dataset(context: ServiceContext, dataset_id: str) -> None:
    """Deletes a data set with its versions; the files stay."""
    context.records.delete(_KIND, dataset_id)


def change_labels(
    context: ServiceContext, dataset_id: str, added: Sequence[ResourceLabel] = (), removed: Collection[str] = ()
) -> None:
    """Adds or replaces labels of a data set, and removes others."""
    refuse_problems(label_problems("Labels", added))
    body = context.records.get(_KIND, dataset_id).body
    context.records.update(_KIND, dataset_id, _labels(body, added, removed))


# ---- versions -----------------------------------------------------------------------------------------------


def create_version(context: ServiceContext, dataset_id: str, version: NewDatasetVersion) -> str:
    """Adds a version; returns its name."""
    refuse_problems(dataset_problems(version))
    if version.dry_run:
        return context.records.version(_KIND, dataset_id, None).name
    return context.records.add_version(_KIND, dataset_id, version.to_wire("dry_run"), prefix="v").name


def read_version(context: ServiceContext, dataset_id: str, name: str) -> DatasetVersion:
    """Returns a version of a data set."""
    return _version(dataset_id, context.records.version(_KIND, dataset_id, name))


def list_versions(context: ServiceContext, dataset_id: str, query: DatasetVersionQuery) -> DatasetVersionList:
    """Returns a page of the versions of a data set, the latest first."""
    refuse_problems(page_problems(query.page_number, query.page_size, query.order))
    versions = [_version(dataset_id, row) for row in context.records.versions(_KIND, dataset_id)]
    if (query.order or "").lower() != "asc":
        versions.reverse()
    keys, values = set(comma_list(query.label_keys)), set(comma_list(query.label_values))
    selected = [
        version
        for version in versions
        if (not keys or keys & {label.key for label in version.labels})
        and (not values or values & {label.value for label in version.labels})
        and (not query.properties or version.property_type in comma_list(query.properties))
        and query.source_id in (None, version.source_id)
    ]
    size = query.page_size or 10
    start = ((query.page_number or 1) - 1) * size
    return DatasetVersionList(
        dataset_versions=selected[start : start + size],
        total_count=len(selected),
        page_number=query.page_number or 1,
        page_size=size,
    )


def update_version(context: ServiceContext, dataset_id: str, name: str, update: DatasetVersionUpdate) -> None:
    """Changes fields of a version."""
    refuse_problems(dataset_problems(update))
    changes = {field: value if value != "" else None for field, value in update.to_wire().items()}
    context.records.update_version(_KIND, dataset_id, name, changes)


def delete_version(context: ServiceContext, dataset_id: str, name: str) -> None:
    """Deletes a version; a data set keeps one at least."""
    if [each.name for each in context.records.versions(_KIND, dataset_id)] == [name]:
        refuse_problems([Problem("VersionName", f"{name!r} is the only version", "delete the data set")])
    context.records.delete_version(_KIND, dataset_id, name)


def change_version_labels(
    context: ServiceContext,
    dataset_id: str,
    name: str,
    added: Sequence[ResourceLabel] = (),
    removed: Collection[str] = (),
) -> None:
    """Adds or replaces labels of a version, and removes others."""
    refuse_problems(label_problems("Labels", added))
    body = context.records.version(_KIND, dataset_id, name).body
    context.records.update_version(_KIND, dataset_id, name, _labels(body, added, removed))


# ---- fields -------------------------------------------------------------------------------------------------


def _labels(body: Mapping[str, Any], added: Sequence[ResourceLabel], removed: Collection[str]) -> dict[str, Any]:
    """Returns the change of a body to other labels."""
    labels = {label.key: label.value or "" for label in (*received(NewLabels, body).labels, *added)}
    remaining = [ResourceLabel(key=key, value=value) for key, value in labels.items() if key not in removed]
    return wire_names(labels=[label.to_wire() for label in remaining] or None)


def _record(context: ServiceContext, row: RecordRow) -> DatasetRecord:
    versions = context.records.versions(_KIND, row.id)
    if not versions:
        raise missing_error(_KIND, row.id)
    record = DatasetRecord(
        dataset_id=row.id,
        name=row.name,
        workspace_id=row.workspace_id,
        accessibility=row.accessibility,
        user_id=row.owner or LOCAL_USER,
        owner_id=LOCAL_USER,
        gmt_create_time=wire_time(row.created_at),
        gmt_modified_time=wire_time(row.modified_at),
        latest_version=_version(row.id, versions[-1]),
    )
    return received(DatasetRecord, {**_NO_LABELS, **row.body, **record.to_wire()})


def _version(dataset_id: str, row: RecordVersionRow) -> DatasetVersion:
    version = DatasetVersion(
        dataset_id=dataset_id,
        version_name=row.name,
        gmt_create_time=wire_time(row.created_at),
        gmt_modified_time=wire_time(row.modified_at),
    )
    return received(DatasetVersion, {**_NO_LABELS, **row.body, **version.to_wire()})
