"""Run with the official client's interpreter: works with jobs of a service, and writes what it got as JSON.

The arguments are the service's endpoint, a key and its secret; the client is used as its documents say.
"""

from __future__ import annotations

import json
import sys
import time

from alibabacloud_pai_dlc20201203 import models
from alibabacloud_pai_dlc20201203.client import Client
from alibabacloud_tea_openapi.models import Config

address, key_id, secret = sys.argv[1:]
client = Client(
    Config(access_key_id=key_id, access_key_secret=secret, endpoint=address, protocol="http", region_id="local")
)


def new_job(name: str, command: str, workers: int = 1) -> models.CreateJobRequest:
    spec = models.JobSpec(type="Worker", pod_count=workers, image="registry/image:1", ecs_spec="ecs.g6.large")
    return models.CreateJobRequest(
        display_name=name,
        job_type="PyTorchJob",
        job_specs=[spec],
        user_command=command,
        workspace_id="1",
        envs={"GREETING": "hello world"},
        settings=models.JobSettings(tags={"official": "a b+c/d"}),
    )


def until_ended(job_id: str) -> models.GetJobResponseBody:
    while True:
        job = client.get_job(job_id, models.GetJobRequest(need_detail=True)).body
        if job.status in ("Succeeded", "Failed", "Stopped"):
            return job
        time.sleep(0.3)


def refusal(action: object, *values: object) -> dict[str, object]:
    try:
        action(*values)
    except Exception as error:
        return {"class": type(error).__name__, "code": error.code, "message": error.message}
    return {}


results: dict[str, object] = {}
command = "echo rank $RANK of $WORLD_SIZE: $GREETING\nseq 5"
job_id = client.create_job(new_job("official", command, workers=2)).body.job_id
job = until_ended(job_id)
results["job"] = job.to_map()
results["logs"] = {
    pod.pod_id: client.get_pod_logs(job_id, pod.pod_id, models.GetPodLogsRequest(max_lines=4)).body.logs
    for pod in job.pods
}
results["events"] = client.get_job_events(job_id, models.GetJobEventsRequest(max_events_num=5)).body.events
metrics = models.GetJobMetricsRequest(metric_type="CpuCoreUsage", time_step="10s")
results["metrics"] = [each.pod_id for each in client.get_job_metrics(job_id, metrics).body.pod_metrics]

sleeping = client.create_job(new_job("official-stop", "sleep 600")).body.job_id
results["stopped"] = client.stop_job(sleeping).body.job_id
results["stop"] = until_ended(sleeping).to_map()
results["second stop"] = refusal(client.stop_job, sleeping)

request = models.ListJobsRequest(
    display_name="official", show_own=True, tags={"official": "a b+c/d"}, page_size=50, order="asc"
)
page = client.list_jobs(request).body
results["list"] = [[each.job_id, each.status] for each in page.jobs]
results["total"] = page.total_count
results["made"] = [job_id, sleeping]
results["wrong page"] = refusal(client.list_jobs, models.ListJobsRequest(page_size=200))
results["specs"] = [
    each.instance_type for each in client.list_ecs_specs(models.ListEcsSpecsRequest()).body.ecs_specs
]
client.update_job(job_id, models.UpdateJobRequest(priority=5))
board = client.create_tensorboard(models.CreateTensorboardRequest(job_id=job_id, display_name="curves")).body
board_id = board.tensorboard_id
results["board"] = client.get_tensorboard(board_id, models.GetTensorboardRequest()).body.to_map()
client.delete_tensorboard(board_id, models.DeleteTensorboardRequest())
token = models.GetTokenRequest(target_type="job", target_id=job_id)
results["token"] = bool(client.get_token(token).body.token)
if hasattr(client, "tag_resources"):
    tag = models.TagResourcesRequestTag(key="later", value="x")
    client.tag_resources(models.TagResourcesRequest(resource_type="Job", resource_id=[job_id], tag=[tag]))
    results["tagged"] = client.get_job(job_id, models.GetJobRequest()).body.settings.tags
    untag = models.UntagResourcesRequest(resource_type="Job", resource_id=[job_id], tag_key=["later"])
    client.untag_resources(untag)
    results["untagged"] = client.get_job(job_id, models.GetJobRequest()).body.settings.tags
results["deleted"] = [client.delete_job(each).body.job_id for each in (job_id, sleeping)]
results["missing"] = refusal(client.get_job, job_id, models.GetJobRequest())
results["refused"] = refusal(client.create_job, models.CreateJobRequest(display_name="a b"))
print(json.dumps(results))
