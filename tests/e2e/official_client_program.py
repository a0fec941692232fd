"""Run by an interpreter that has PAI's official client: every action it has on jobs and algorithms, on a service.

Argument: a JSON object with endpoint, key and names. Output: a JSON object of action to answer or error.
"""

import json
import sys
import time

from alibabacloud_paistudio20220112 import models
from alibabacloud_paistudio20220112.client import Client
from alibabacloud_tea_openapi.models import Config

GIVEN = json.loads(sys.argv[1])
ANSWERS = {}
SPEC = {
    "Image": "none",
    "Command": ["sh", "-c", "echo PAI_HPS_LR=$PAI_HPS_LR; echo loss=0.5 done=0.25; sleep 600"],
    "HyperParameters": [{"Name": "lr", "Type": "Float", "DefaultValue": "0.1"}],
    "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    "ProgressDefinitions": {"OverallProgress": {"Regex": "done=([0-9.]+)"}},
}
client = Client(
    Config(
        access_key_id=GIVEN["access_key_id"],
        access_key_secret=GIVEN["access_key_secret"],
        region_id=GIVEN["region_id"],
        endpoint=GIVEN["endpoint"].removeprefix("http://"),
        protocol="http",
        connect_timeout=60_000,
        read_timeout=60_000,
    )
)


def ask(action, *arguments):
    try:
        answer = getattr(client, action)(*arguments).body.to_map()
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}", "code": getattr(error, "code", None)}
    ANSWERS[action] = answer
    return answer


def needed(name, action, *arguments):
    answer = ask(action, *arguments)
    if name not in answer:
        sys.exit(f"{action}: {answer}")
    return answer[name]


def request(model, **fields):
    return getattr(models, model)().from_map(fields)


def until(look):
    deadline = time.monotonic() + 60
    while not look() and time.monotonic() < deadline:
        time.sleep(0.1)


algorithm = needed(
    "AlgorithmId", "create_algorithm", request("CreateAlgorithmRequest", AlgorithmName="official", WorkspaceId="1")
)
for version in ("v1", "v2"):
    spec = models.CreateAlgorithmVersionRequest(algorithm_spec=models.AlgorithmSpec().from_map(SPEC))
    ask("create_algorithm_version", algorithm, version, spec)
ask("update_algorithm", algorithm, request("UpdateAlgorithmRequest", AlgorithmDescription="of an official client"))
changed = models.UpdateAlgorithmVersionRequest(algorithm_spec=models.AlgorithmSpec().from_map(SPEC))
ask("update_algorithm_version", algorithm, "v1", changed)
ask("get_algorithm", algorithm)
ask("list_algorithms", request("ListAlgorithmsRequest", AlgorithmName="official", WorkspaceId="1"))
ask("get_algorithm_version", algorithm, "v1")
ask("list_algorithm_versions", algorithm, request("ListAlgorithmVersionsRequest", PageSize=10))

job = needed(
    "TrainingJobId",
    "create_training_job",
    request(
        "CreateTrainingJobRequest",
        TrainingJobName="official",
        WorkspaceId="1",
        AlgorithmName="official",
        AlgorithmVersion="v1",
        ComputeResource={"EcsSpec": "ecs.c6.large", "EcsCount": 1},
        Labels=[{"Key": "team", "Value": "search"}],
    ),
)
instance = f"{job}-master-0"
metrics = request("ListTrainingJobInstanceMetricsRequest", MetricType="MemoryUsage", TimeStep="10s")
until(lambda: client.get_training_job(job).body.latest_metrics)
until(lambda: client.get_training_job(job).body.latest_progress)
until(lambda: client.list_training_job_instance_metrics(job, metrics).body.instance_metrics[0].metrics)
ask("get_training_job", job)
ask("list_training_jobs", request("ListTrainingJobsRequest", AlgorithmName="official", Labels={"team": "search"}))
ask("list_training_job_logs", job, request("ListTrainingJobLogsRequest", InstanceId=instance))
ask("list_training_job_events", job, request("ListTrainingJobEventsRequest"))
ask("list_training_job_instance_events", job, instance, request("ListTrainingJobInstanceEventsRequest"))
ask("list_training_job_metrics", job, request("ListTrainingJobMetricsRequest", Name="loss"))
ask("get_training_job_latest_metrics", job, request("GetTrainingJobLatestMetricsRequest", Names="loss"))
ask("list_training_job_instance_metrics", job, metrics)
ask("get_token", request("GetTokenRequest", TrainingJobId=job, ExpireTime=60))
ask("create_instance_web_terminal", job, instance)
ask("check_instance_web_terminal", job, instance, request("CheckInstanceWebTerminalRequest", CheckInfo="x"))
ask(
    "update_training_job_labels",
    job,
    request("UpdateTrainingJobLabelsRequest", Labels=[{"Key": "a", "Value": "b"}]),
)
ask("delete_training_job_labels", job, request("DeleteTrainingJobLabelsRequest", Keys="a"))
ask("stop_training_job", job)
until(lambda: client.get_training_job(job).body.status == "Terminated")
ask("get_training_job_error_info", job)
ask("list_training_job_output_models", job)
ask("delete_training_job", job)
ask("delete_algorithm_version", algorithm, "v2")
ask("delete_algorithm", algorithm)
print(json.dumps(ANSWERS))
