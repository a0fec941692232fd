"""Data sets of a workspace, and their versions."""

from __future__ import annotations

from pydantic import Field

from pai_sdk._wire.body import Body, Boolean, Integer, Query, String, Strings
from pai_sdk._wire.workspace.labels import ResourceLabel

__all__ = [
    "DatasetChanged",
    "DatasetList",
    "DatasetQuery",
    "DatasetRecord",
    "DatasetReference",
    "DatasetShare",
    "DatasetSharing",
    "DatasetUpdate",
    "DatasetVersion",
    "DatasetVersionList",
    "DatasetVersionQuery",
    "DatasetVersionReference",
    "DatasetVersionUpdate",
    "NewDataset",
    "NewDatasetVersion",
    "UserMetricsEndpoint",
]


class UserMetricsEndpoint(Body):
    """Where metrics of a data set are read."""

    path: String = None
    port: Integer = None


class DatasetShare(Body):
    """With whom a data set is shared."""

    allowed_mount_access_levels: Strings = Field(default_factory=list)
    expires_at: String = None
    extra: String = None
    is_secure_mode: Boolean = None
    shared_at: String = None
    source_tenant_id: String = None
    source_workspace_id: String = None
    status: String = None
    tenant_id: String = None
    workspace_id: String = None


class DatasetSharing(Body):
    """With whom a data set is shared."""

    shared_to: list[DatasetShare] = Field(default_factory=list)


class DatasetVersion(Body):
    """A version of a data set."""

    keeps_empty = frozenset({"Labels", "labels"})

    dataset_id: String = None
    version_name: String = None
    uri: String = None
    data_source_type: String = None
    property_type: String = Field(default=None, alias="Property")
    options: String = None
    mount_access: String = None
    data_count: Integer = None
    data_size: Integer = None
    dataset_task_ram_role: String = None
    description: String = None
    gmt_create_time: String = None
    gmt_modified_time: String = None
    import_info: String = None
    labels: list[ResourceLabel] = Field(default_factory=list)
    source_id: String = None
    source_type: String = None
    user_metrics_endpoints: list[UserMetricsEndpoint] = Field(default_factory=list)
    request_id: String = None


class DatasetRecord(Body):
    """A data set. `Options` is JSON text with the default `mountPath`."""

    keeps_empty = frozenset({"Labels", "labels"})

    dataset_id: String = None
    name: String = None
    workspace_id: String = None
    uri: String = None
    data_source_type: String = None
    property_type: String = Field(default=None, alias="Property")
    options: String = None
    mount_access: String = None
    latest_version: DatasetVersion | None = None
    accessibility: String = None
    accessible_role_id_list: Strings = Field(default_factory=list)
    data_type: String = None
    description: String = None
    edition: String = None
    gmt_create_time: String = None
    gmt_modified_time: String = None
    import_info: String = None
    is_shared: Boolean = None
    labels: list[ResourceLabel] = Field(default_factory=list)
    mount_access_read_write_role_id_list: Strings = Field(default_factory=list)
    owner_id: String = None
    provider_type: String = None
    shared_from: DatasetShare | None = None
    sharing_config: DatasetSharing | None = None
    source_dataset_id: String = None
    source_dataset_version: String = None
    source_id: String = None
    source_type: String = None
    tag_template_type: String = None
    user_id: String = None
    provider: String = None
    request_id: String = None


class NewDataset(Body):
    """The body of CreateDataset."""

    name: String = None
    workspace_id: String = None
    uri: String = None
    data_source_type: String = None
    property_type: String = Field(default=None, alias="Property")
    options: String = None
    accessibility: String = None
    accessible_role_id_list: Strings = Field(default_factory=list)
    data_count: Integer = None
    data_size: Integer = None
    data_type: String = None
    dataset_task_ram_role: String = None
    description: String = None
    dry_run: Boolean = None
    edition: String = None
    import_info: String = None
    labels: list[ResourceLabel] = Field(default_factory=list)
    mount_access_read_write_role_id_list: Strings = Field(default_factory=list)
    provider: String = None
    provider_type: String = None
    source_dataset_id: String = None
    source_dataset_version: String = None
    source_id: String = None
    source_type: String = None
    user_id: String = None
    user_metrics_endpoints: list[UserMetricsEndpoint] = Field(default_factory=list)
    version_description: String = None
    version_labels: list[ResourceLabel] = Field(default_factory=list)


class DatasetUpdate(Body):
    """The body of UpdateDataset. An empty description removes it."""

    keeps_empty = frozenset({"Description", "description"})

    name: String = None
    accessibility: String = None
    accessible_role_id_list: Strings = Field(default_factory=list)
    description: String = None
    edition: String = None
    mount_access_read_write_role_id_list: Strings = Field(default_factory=list)
    options: String = None
    sharing_config: DatasetSharing | None = None


class NewDatasetVersion(Body):
    """The body of CreateDatasetVersion."""

    uri: String = None
    data_source_type: String = None
    property_type: String = Field(default=None, alias="Property")
    options: String = None
    data_count: Integer = None
    data_size: Integer = None
    dataset_task_ram_role: String = None
    description: String = None
    dry_run: Boolean = None
    import_info: String = None
    labels: list[ResourceLabel] = Field(default_factory=list)
    source_id: String = None
    source_type: String = None
    user_metrics_endpoints: list[UserMetricsEndpoint] = Field(default_factory=list)


class DatasetVersionUpdate(Body):
    """The body of UpdateDatasetVersion. An empty description removes it."""

    keeps_empty = frozenset({"Description", "description"})

    data_count: Integer = None
    data_size: Integer = None
    dataset_task_ram_role: String = None
    description: String = None
    options: String = None
    user_metrics_endpoints: list[UserMetricsEndpoint] = Field(default_factory=list)


class DatasetReference(Body):
    """The response of CreateDataset."""

    dataset_id: String = None
    request_id: String = None


class DatasetVersionReference(Body):
    """The response of CreateDatasetVersion."""

    version_name: String = None
    request_id: String = None


class DatasetChanged(Body):
    """The response of actions that change or delete a data set, a version or labels."""

    request_id: String = None


class DatasetQuery(Query):
    """The parameters of ListDatasets."""

    workspace_id: String = None
    name: String = None
    dataset_ids: String = None
    accessibility: String = None
    data_source_types: String = None
    data_types: String = None
    edition: String = None
    label: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None
    properties: String = None
    provider: String = None
    share_scope: String = None
    sort_by: String = None
    source_dataset_id: String = None
    source_id: String = None
    source_types: String = None


class DatasetList(Body):
    """A page of ListDatasets."""

    keeps_empty = frozenset({"Datasets", "datasets"})

    datasets: list[DatasetRecord] = Field(default_factory=list)
    total_count: Integer = None
    request_id: String = None


class DatasetVersionQuery(Query):
    """The parameters of ListDatasetVersions."""

    label_keys: String = None
    label_values: String = None
    order: String = None
    page_number: Integer = None
    page_size: Integer = None
    properties: String = None
    sort_by: String = None
    source_id: String = None
    source_types: String = None


class DatasetVersionList(Body):
    """A page of ListDatasetVersions."""

    keeps_empty = frozenset({"DatasetVersions", "dataset_versions"})

    dataset_versions: list[DatasetVersion] = Field(default_factory=list)
    total_count: Integer = None
    page_number: Integer = None
    page_size: Integer = None
    request_id: String = None
