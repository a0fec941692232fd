"""AIWorkspace: data sets, their versions and labels."""

from __future__ import annotations

from fastapi import APIRouter, Request

from pai_sdk._service.http.auditing import record_created_id
from pai_sdk._service.identity.requests import PrincipalOf
from pai_sdk._service.routes.dlc.dlc_route import BodyRoute
from pai_sdk._service.services.budgets import LISTS, within
from pai_sdk._service.services.context import ContextOf
from pai_sdk._service.services.dlc import datasets
from pai_sdk._wire.body import comma_list
from pai_sdk._wire.workspace.datasets import (
    DatasetChanged,
    DatasetList,
    DatasetQuery,
    DatasetRecord,
    DatasetReference,
    DatasetUpdate,
    DatasetVersion,
    DatasetVersionList,
    DatasetVersionQuery,
    DatasetVersionReference,
    DatasetVersionUpdate,
    NewDataset,
    NewDatasetVersion,
)
from pai_sdk._wire.workspace.labels import LabelKeysQuery, NewLabels, VersionLabelKeysQuery

router = APIRouter(prefix="/api/v1/datasets", route_class=BodyRoute)


@router.post("")
def create_dataset(
    request: Request, context: ContextOf, principal: PrincipalOf, dataset: NewDataset
) -> DatasetReference:
    """CreateDataset."""
    dataset_id = datasets.create_dataset(context, principal, dataset)
    record_created_id(request, dataset_id)
    return DatasetReference(dataset_id=dataset_id)


@router.get("")
@within(LISTS)
def list_datasets(context: ContextOf, principal: PrincipalOf, query: DatasetQuery) -> DatasetList:
    """ListDatasets. `Name` may be a part of a name."""
    return datasets.list_datasets(context, principal, query)


@router.get("/{dataset_id}")
def get_dataset(context: ContextOf, dataset_id: str) -> DatasetRecord:
    """GetDataset."""
    return datasets.read_dataset(context, dataset_id)


@router.put("/{dataset_id}")
def update_dataset(context: ContextOf, dataset_id: str, update: DatasetUpdate) -> DatasetChanged:
    """UpdateDataset."""
    datasets.update_dataset(context, dataset_id, update)
    return DatasetChanged()


@router.put("/{dataset_id}/publish")
def publish_dataset(context: ContextOf, dataset_id: str) -> DatasetReference:
    """PublishDataset: the members of the workspace can see it."""
    datasets.update_dataset(context, dataset_id, DatasetUpdate(accessibility="PUBLIC"))
    return DatasetReference(dataset_id=dataset_id)


@router.delete("/{dataset_id}")
def delete_dataset(context: ContextOf, dataset_id: str) -> DatasetChanged:
    """DeleteDataset. Its files stay."""
    datasets.delete_dataset(context, dataset_id)
    return DatasetChanged()


@router.post("/{dataset_id}/labels")
def create_dataset_labels(context: ContextOf, dataset_id: str, labels: NewLabels) -> DatasetChanged:
    """CreateDatasetLabels: adds labels, and replaces those of the same key."""
    datasets.change_labels(context, dataset_id, added=labels.labels)
    return DatasetChanged()


@router.delete("/{dataset_id}/labels")
def delete_dataset_labels(context: ContextOf, dataset_id: str, query: LabelKeysQuery) -> DatasetChanged:
    """DeleteDatasetLabels."""
    datasets.change_labels(context, dataset_id, removed=comma_list(query.label_keys))
    return DatasetChanged()


@router.post("/{dataset_id}/versions")
def create_dataset_version(
    context: ContextOf, dataset_id: str, version: NewDatasetVersion
) -> DatasetVersionReference:
    """CreateDatasetVersion: `v2`, then the next."""
    return DatasetVersionReference(version_name=datasets.create_version(context, dataset_id, version))


@router.get("/{dataset_id}/versions")
def list_dataset_versions(context: ContextOf, dataset_id: str, query: DatasetVersionQuery) -> DatasetVersionList:
    """ListDatasetVersions."""
    return datasets.list_versions(context, dataset_id, query)


@router.get("/{dataset_id}/versions/{version}")
def get_dataset_version(context: ContextOf, dataset_id: str, version: str) -> DatasetVersion:
    """GetDatasetVersion."""
    return datasets.read_version(context, dataset_id, version)


@router.put("/{dataset_id}/versions/{version}")
def update_dataset_version(
    context: ContextOf, dataset_id: str, version: str, update: DatasetVersionUpdate
) -> DatasetChanged:
    """UpdateDatasetVersion."""
    datasets.update_version(context, dataset_id, version, update)
    return DatasetChanged()


@router.delete("/{dataset_id}/versions/{version}")
def delete_dataset_version(context: ContextOf, dataset_id: str, version: str) -> DatasetChanged:
    """DeleteDatasetVersion, but not of the only one."""
    datasets.delete_version(context, dataset_id, version)
    return DatasetChanged()


@router.put("/{dataset_id}/versions/{version}/labels")
def create_dataset_version_labels(
    context: ContextOf, dataset_id: str, version: str, labels: NewLabels
) -> DatasetChanged:
    """CreateDatasetVersionLabels: adds labels, and replaces those of the same key."""
    datasets.change_version_labels(context, dataset_id, version, added=labels.labels)
    return DatasetChanged()


@router.delete("/{dataset_id}/versions/{version}/labels")
def delete_dataset_version_labels(
    context: ContextOf, dataset_id: str, version: str, query: VersionLabelKeysQuery
) -> DatasetChanged:
    """DeleteDatasetVersionLabels."""
    datasets.change_version_labels(context, dataset_id, version, removed=comma_list(query.keys))
    return DatasetChanged()
