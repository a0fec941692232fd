"""Data sets of a workspace, with versions and labels: jobs of DLC mount them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pai_sdk._service.identity.principal import LOCAL_USER, Principal
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.problems import missing_error, refuse_problems
from pai_sdk._service.services.dlc.records import Kind, RecordQuery
from pai_sdk._service.state.dlc_models import RecordRow, RecordVersionRow
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
from pai_sdk._wire.workspace.labels import ResourceLabel
from pai_sdk.errors import Problem

_KIND: Kind = "data set"
_FIRST_VERSION = "v1"
# The fields of a new data set that are those of its first version too.
_OF_VERSIONS: tuple[str, ...] = (
    "Uri",
    "DataSourceType",
    "Property",
    "Options",
    "DataCount",
    "DataSize",
    "ImportInfo",
    "SourceId",
    "SourceType",
)


def create_dataset(context: ServiceContext, principal: Principal, dataset: NewDataset) -> str:
    """Registers a data set with its first version; returns its id. Nothing is stored on a dry run."""
    refuse_problems(dataset_problems(dataset))
    workspace_id = context.workspace_for(principal, dataset.workspace_id)
    body = {name: value for name, value in dataset.to_wire().items() if name not in ("WorkspaceId", "DryRun")}
    version = {name: body[name] for name in _OF_VERSIONS if name in body}
    for name, field in (("Description", "VersionDescription"), ("Labels", "VersionLabels")):
        if field in body:
            version[name] = body.pop(field)
    dataset_id = new_dataset_id()
    if not dataset.dry_run:
        context.records.create(
            _KIND,
            dataset_id,
            body,
            name=dataset.name or "",
            workspace_id=workspace_id,
            owner=principal.user,
            versions={_FIRST_VERSION: version},
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
        values={
            "DataSourceType": comma_list(query.data_source_types),
            "DataType": comma_list(query.data_types),
            "Property": comma_list(query.properties),
            "SourceType": comma_list(query.source_types),
            "SourceId": comma_list(query.source_id),
            "Provider": comma_list(query.provider),
            "Edition": comma_list(query.edition),
        },
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
    wire = update.to_wire()
    changes = {name: wire[name] if wire[name] != "" else None for name in wire if name != "Name"}
    context.records.update(_KIND, dataset_id, changes, name=update.name)


def delete_dataset(context: ServiceContext, dataset_id: str) -> None:
    """Deletes a data set with its versions; the files stay."""
    context.records.delete(_KIND, dataset_id)


def change_labels(
    context: ServiceContext, dataset_id: str, added: Sequence[ResourceLabel] = (), removed: Collection[str] = ()
) -> None:
    """Adds or replaces labels of a data set, and removes others."""
    refuse_problems(label_problems("Labels", added))
    body = context.records.get(_KIND, dataset_id).body
    context.records.update(_KIND, dataset_id, {"Labels": _labels(body, added, removed)})


# ---- versions -----------------------------------------------------------------------------------------------


def create_version(context: ServiceContext, dataset_id: str, version: NewDatasetVersion) -> str:
    """Adds a version; returns its name."""
    refuse_problems(dataset_problems(version))
    body = {name: value for name, value in version.to_wire().items() if name != "DryRun"}
    if version.dry_run:
        return context.records.version(_KIND, dataset_id, None).name
    return context.records.add_version(_KIND, dataset_id, body, prefix="v").name


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
    context.records.update_version(_KIND, dataset_id, name, {"Labels": _labels(body, added, removed)})


# ---- fields -------------------------------------------------------------------------------------------------


def _labels(
    body: Mapping[str, Any], added: Sequence[ResourceLabel], removed: Collection[str]
) -> list[dict[str, str]] | None:
    labels = {label["Key"]: label.get("Value", "") for label in body.get("Labels", ())}
    labels |= {label.key or "": label.value or "" for label in added}
    return [{"Key": key, "Value": value} for key, value in labels.items() if key not in removed] or None


def _record(context: ServiceContext, row: RecordRow) -> DatasetRecord:
    versions = context.records.versions(_KIND, row.id)
    if not versions:
        raise missing_error(_KIND, row.id)
    fields = {
        **row.body,
        "Labels": row.body.get("Labels", []),
        "DatasetId": row.id,
        "Name": row.name,
        "WorkspaceId": row.workspace_id,
        "Accessibility": row.accessibility,
        "UserId": row.owner or LOCAL_USER,
        "OwnerId": LOCAL_USER,
        "GmtCreateTime": wire_time(row.created_at),
        "GmtModifiedTime": wire_time(row.modified_at),
        "LatestVersion": _version(row.id, versions[-1]).to_wire(),
    }
    return received(DatasetRecord, fields)


def _version(dataset_id: str, row: RecordVersionRow) -> DatasetVersion:
    fields = {
        **row.body,
        "Labels": row.body.get("Labels", []),
        "DatasetId": dataset_id,
        "VersionName": row.name,
        "GmtCreateTime": wire_time(row.created_at),
        "GmtModifiedTime": wire_time(row.modified_at),
    }
    return received(DatasetVersion, fields)
