"""Our bodies have every field of PAI's public clients, spelt as they spell it, and no other one.

The names are in `tests/golden/dlc_fields.json`; `tests/support/client_fields.py` writes that file.
"""

from __future__ import annotations

import importlib

import pytest
from pydantic.alias_generators import to_pascal

from pai_sdk._wire.body import Body, unknown_fields
from pai_sdk._wire.dlc.actions import ACTIONS
from pai_sdk._wire.dlc.records import JobDetail, JobItem
from tests.support.client_fields import full_body, golden_fields

pytestmark = pytest.mark.interpreter

GOLDEN = golden_fields()

# Module and model of ours: models of the clients.
OURS = """
dlc.pod_specs:
  EnvVar: EnvVar
  ResourceRequirements: ResourceRequirements
  Capabilities: SecurityContextCapabilities
  SeccompProfile: SeccompProfile
  SecurityContext: SecurityContext
  ContainerSpec: ContainerSpec
  ExecAction: LifecyclePostStartExec LifecyclePreStopExec
  LifecycleHook: LifecyclePostStart LifecyclePreStop
  Lifecycle: Lifecycle
  ExtraPodSpec: ExtraPodSpec
dlc.job_specs:
  HyperNodeSpec: HyperNodeSpec
  AssignNodeSpec: AssignNodeSpec
  HyperNodeSchedulingConfig: HyperNodeSchedulingConfig
  AutoscalingMetricSpec: AutoscalingMetricSpec
  AutoScalingSpec: AutoScalingSpec
  ElasticSpotSpec: ElasticSpotSpec
  SpotSpec: SpotSpec
  ImageConfig: ImageConfig
  LocalMountSpec: LocalMountSpec
  ResourceConfig: ResourceConfig
  ServiceSpec: ServiceSpec
  StartupDependency: StartupDependency
  SystemDisk: SystemDisk
  JobSpec: JobSpec
dlc.settings:
  ResourceLimit: ResourceLimit
  DataJuicerConfig: DataJuicerConfig
  ModelTemplate: ModelTemplate
  ModelConfig: ModelConfig
  JobSettings: JobSettings
  JobElasticSpec: JobElasticSpec
dlc.sources:
  DataSource: CreateJobRequestDataSources GetJobResponseBodyDataSources JobItemDataSources
  CodeSource: CreateJobRequestCodeSource GetJobResponseBodyCodeSource JobItemCodeSource
  CustomEnv: CreateJobRequestCustomEnvs GetJobResponseBodyCustomEnvs
  UserVpc: CreateJobRequestUserVpc
  RecordedVpc: GetJobResponseBodyUserVpc JobItemUserVpc
  AssumeUserInfo: AssumeUserInfo
  CredentialRole: CredentialRole
  CredentialConfigItem: CredentialConfigItem
  CredentialConfig: CredentialConfig
dlc.jobs:
  NewJob: CreateJobRequest
  JobReference: CreateJobResponseBody StopJobResponseBody DeleteJobResponseBody UpdateJobResponseBody
  JobUpdate: UpdateJobRequest
  JobDetailQuery: GetJobRequest
  JobQuery: ListJobsRequest
dlc.records:
  StatusEntry: StatusTransitionItem
  PodNetworkInterface: PodNetworkInterface
  Pod: GetJobResponseBodyPods GetJobResponseBodyPodsHistoryPods PodItem
  RestartError: GetJobResponseBodyRestartRecordDetailErrorInfoList
  RestartRecord: GetJobResponseBodyRestartRecord
  JobReplicaStatus: JobReplicaStatus
  JobDetail: GetJobResponseBody
  JobItem: JobItem
  JobList: ListJobsResponseBody
dlc.logs:
  PodLogQuery: GetPodLogsRequest
  ContainerInfo: ContainerInfo
  PodLogs: GetPodLogsResponseBody
  EventQuery: GetPodEventsRequest GetJobEventsRequest
  PodEvents: GetPodEventsResponseBody
  JobEvents: GetJobEventsResponseBody
dlc.metrics:
  JobMetricsQuery: GetJobMetricsRequest
  MetricValue: Metric
  PodMetric: PodMetric
  JobMetrics: GetJobMetricsResponseBody
  MetricsQuery: GetMetricsRequest
  MetricsPage: GetMetricsResponseBody
dlc.resources.access:
  TokenSettings: TokenSettings
  TokenQuery: GetTokenRequest
  SharingToken: GetTokenResponseBody
  WebTerminalQuery: GetWebTerminalRequest
  WebTerminal: GetWebTerminalResponseBody
  DashboardQuery: GetDashboardRequest GetRayDashboardRequest
  Dashboard: GetDashboardResponseBody
  RayDashboard: GetRayDashboardResponseBody
dlc.resources.ecs_specs:
  EcsSpecQuery: ListEcsSpecsRequest
  EcsSpec: EcsSpec
  EcsSpecList: ListEcsSpecsResponseBody
dlc.resources.ray_history:
  NewRayHistoryServer: CreateRayHistoryServerRequest
  RayHistoryServerReference: CreateRayHistoryServerResponseBody DeleteRayHistoryServerResponseBody
    StartRayHistoryServerResponseBody StopRayHistoryServerResponseBody
  RayHistoryServer: GetRayHistoryServerResponseBody ListRayHistoryServersResponseBodyRayHistoryServers
  RayHistoryServerQuery: ListRayHistoryServersRequest
  RayHistoryServerList: ListRayHistoryServersResponseBody
dlc.resources.sanity_checks:
  SanityCheckItem: SanityCheckResultItem
  SanityCheckQuery: GetJobSanityCheckResultRequest
  SanityCheck: GetJobSanityCheckResultResponseBody
  SanityCheckListQuery: ListJobSanityCheckResultsRequest
  SanityCheckList: ListJobSanityCheckResultsResponseBody
dlc.resources.signals:
  SignalTarget: SignalTarget
  NewSignal: CreateSignalRequest
  CreatedSignal: CreateSignalResponseBody
  SignalDetailQuery: GetSignalRequest
  SignalRecord: GetSignalResponseBody ListSignalsResponseBodySignals
  SignalQuery: ListSignalsRequest
  SignalList: ListSignalsResponseBody
dlc.resources.tags:
  Tag: TagResourcesRequestTag
  NewTags: TagResourcesRequest
  UntagQuery: UntagResourcesRequest
  TagsChanged: TagResourcesResponseBody UntagResourcesResponseBody
dlc.resources.templates:
  NewTemplate: CreateJobTemplateRequest
  CreatedTemplate: CreateJobTemplateResponseBody
  TemplateDetailQuery: GetJobTemplateRequest
  TemplateVersion: GetJobTemplateResponseBodyVersions JobTemplateVersionDetail
  TemplateRecord: ListJobTemplatesResponseBodyJobTemplates
  TemplateDetail: GetJobTemplateResponseBody
  TemplateUpdate: UpdateJobTemplateRequest
  UpdatedTemplate: UpdateJobTemplateResponseBody
  DefaultVersion: SetJobTemplateDefaultVersionRequest
  DefaultVersionChanged: SetJobTemplateDefaultVersionResponseBody
  TemplateReference: DeleteJobTemplateResponseBody
  TemplateQuery: ListJobTemplatesRequest
  TemplateList: ListJobTemplatesResponseBody
dlc.resources.tensorboards:
  TensorboardSource: DataSourceItem
  TensorboardDataSource: TensorboardDataSourceSpec
  TensorboardSpec: TensorboardSpec
  NewTensorboard: CreateTensorboardRequest
  TensorboardRecord: Tensorboard
  TensorboardReference: CreateTensorboardResponseBody StartTensorboardResponseBody StopTensorboardResponseBody
    DeleteTensorboardResponseBody UpdateTensorboardResponseBody
  TensorboardDetailQuery: GetTensorboardRequest
  TensorboardChangeQuery: StartTensorboardRequest StopTensorboardRequest DeleteTensorboardRequest
  TensorboardUpdateQuery: UpdateTensorboardRequest
  TensorboardQuery: ListTensorboardsRequest
  TensorboardList: ListTensorboardsResponseBody
  SharedUrlQuery: GetTensorboardSharedUrlRequest
  SharedUrl: GetTensorboardSharedUrlResponseBody
workspace.labels:
  ResourceLabel: Label
  NewLabels: CreateDatasetLabelsRequest CreateDatasetVersionLabelsRequest
  LabelKeysQuery: DeleteDatasetLabelsRequest
  VersionLabelKeysQuery: DeleteDatasetVersionLabelsRequest
workspace.datasets:
  UserMetricsEndpoint: UserMetricsEndpoint
  DatasetShare: DatasetShareRelationship
  DatasetSharing: DatasetSharingConfig GetDatasetResponseBodySharingConfig UpdateDatasetRequestSharingConfig
  DatasetVersion: DatasetVersion GetDatasetVersionResponseBody
  DatasetRecord: Dataset GetDatasetResponseBody
  NewDataset: CreateDatasetRequest
  DatasetUpdate: UpdateDatasetRequest
  NewDatasetVersion: CreateDatasetVersionRequest
  DatasetVersionUpdate: UpdateDatasetVersionRequest
  DatasetReference: CreateDatasetResponseBody
  DatasetVersionReference: CreateDatasetVersionResponseBody
  DatasetChanged: CreateDatasetLabelsResponseBody CreateDatasetVersionLabelsResponseBody
    DeleteDatasetLabelsResponseBody DeleteDatasetVersionLabelsResponseBody DeleteDatasetResponseBody
    DeleteDatasetVersionResponseBody UpdateDatasetResponseBody UpdateDatasetVersionResponseBody
  DatasetQuery: ListDatasetsRequest
  DatasetList: ListDatasetsResponseBody
  DatasetVersionQuery: ListDatasetVersionsRequest
  DatasetVersionList: ListDatasetVersionsResponseBody
workspace.code_sources:
  NewCodeSource: CreateCodeSourceRequest
  CodeSourceRecord: CodeSourceItem GetCodeSourceResponseBody
  CodeSourceUpdate: UpdateCodeSourceRequest
  CodeSourceReference: CreateCodeSourceResponseBody UpdateCodeSourceResponseBody DeleteCodeSourceResponseBody
  CodeSourceQuery: ListCodeSourcesRequest
  CodeSourceList: ListCodeSourcesResponseBody
workspace.quotas:
  QuotaQuery: ListQuotasRequest
  QuotaSpec: ListQuotasResponseBodyQuotasSpecs
  QuotaRecord: ListQuotasResponseBodyQuotas
  QuotaList: ListQuotasResponseBody
"""

# Models of the clients that no action has (those of RL… neither), but for the first line: lists as text.
NOT_IN_ANY_ACTION = """
  ListJobsShrinkRequest UntagResourcesShrinkRequest
  AIMasterMessage AliyunAccounts DebuggerConfig DebuggerJob DebuggerJobIssue DebuggerResult DownloadJobResult
  EventInfo FreeResourceClusterControlItem FreeResourceDetail FreeResourceItem GPUDetail ImageItem
  JobDebuggerConfig LogInfo Member NodeMetric Quota QuotaConfig QuotaDetail Resources ServiceExposure
  SmartCache Workspace
"""

# Fields of ours that the models of the clients lack: what a job was sent with, and what the other one has.
OURS_ONLY = {
    "JobDetail": {
        "DebuggerConfigContent",
        "JobMaxRunningTimeMinutes",
        "Options",
        "SuccessPolicy",
        "TemplateId",
        "TemplateVersion",
    },
    "JobItem": {
        "CustomEnvs",
        "Description",
        "Options",
        "RestartRecord",
        "RoleSystemEnvs",
        "SuccessPolicy",
        "TemplateVersion",
    },
}


def table(text: str) -> dict[str, dict[str, list[str]]]:
    """Module to model to models of the clients."""
    modules: dict[str, dict[str, list[str]]] = {}
    module = ""
    for line in text.replace("\n    ", " ").strip().splitlines():
        name, _, rest = line.strip().partition(":")
        if line.startswith("  "):
            modules[module][name] = rest.split()
        else:
            modules[name] = {}
            module = name
    return modules


def model(module: str, name: str) -> type[Body]:
    found: type[Body] = getattr(importlib.import_module(f"pai_sdk._wire.{module}"), name)
    found.model_rebuild()
    return found


def wire_names(ours: type[Body]) -> set[str]:
    return {field.alias or to_pascal(name) for name, field in ours.model_fields.items()}


PAIRS = [
    (client, module, ours, theirs)
    for client, golden in GOLDEN.items()
    for module, models in table(OURS).items()
    for ours, names in models.items()
    for theirs in names
    if theirs in golden["models"] and module.startswith("workspace") == client.startswith("aiworkspace")
]


@pytest.mark.parametrize(("client", "module", "ours", "theirs"), PAIRS)
def test_a_body_with_every_field_is_read_and_written(client: str, module: str, ours: str, theirs: str) -> None:
    body = full_body(GOLDEN[client]["models"], theirs)
    read = model(module, ours).model_validate(body)
    assert unknown_fields(read) == []
    assert read.to_wire() == body


def test_no_field_is_ours_alone() -> None:
    ours, theirs = {}, {}
    for module, models in table(OURS).items():
        client = "aiworkspace 8.3.5" if module.startswith("workspace") else "dlc 1.11.6"
        for name, names in models.items():
            ours[name] = wire_names(model(module, name)) - OURS_ONLY.get(name, set())
            theirs[name] = {field for each in names for field in GOLDEN[client]["models"][each]}
    assert ours == theirs


def test_every_model_of_the_clients_has_its_place() -> None:
    placed = {each for models in table(OURS).values() for names in models.values() for each in names}
    golden = {name for client in GOLDEN.values() for name in client["models"] if not name.startswith("RL")}
    assert golden == placed | {*NOT_IN_ANY_ACTION.split()}


def test_every_model_of_ours_is_compared() -> None:
    for module, models in table(OURS).items():
        code = importlib.import_module(f"pai_sdk._wire.{module}")
        assert {name for name in code.__all__ if isinstance(getattr(code, name), type)} == {*models}


def test_actions_have_their_methods_and_paths() -> None:
    ours = {name: [action.method, action.path] for name, action in ACTIONS.items()}
    assert ours == GOLDEN["dlc 1.11.6"]["actions"]
    assert GOLDEN["dlc 1.4.4"]["actions"].items() <= ours.items()


def test_ids_are_quoted_in_paths() -> None:
    path = ACTIONS["GetPodLogs"].path_of(job_id="dlc1", pod_id="dlc1/master~0")
    assert path == "/api/v1/jobs/dlc1/pods/dlc1%2Fmaster~0/logs"


@pytest.mark.parametrize("model", [JobDetail, JobItem])
@pytest.mark.parametrize("field", ["Envs", "RoleSystemEnvs"])
def test_variables_are_in_no_repr(model: type[Body], field: str) -> None:
    assert "hidden" not in repr(model.model_validate({field: {"TOKEN": "hidden"}}))
