"""The vendor's client: types of instances first, two jobs, and a wait for one of three states."""

from __future__ import annotations

import os
import sys
import time

from alibabacloud_pai_dlc20201203.client import Client
from alibabacloud_pai_dlc20201203.models import (
    CreateJobRequest,
    CreateJobRequestDataSources,
    GetJobRequest,
    JobSpec,
    ListEcsSpecsRequest,
    ListJobsRequest,
    ResourceConfig,
)
from alibabacloud_tea_openapi.models import Config

client = Client(
    Config(
        access_key_id=os.environ["DLC_ACCESS_ID"],
        access_key_secret=os.environ["DLC_ACCESS_KEY"],
        region_id="cn-hangzhou",
        endpoint=os.environ["DLC_ENDPOINT"],
        protocol="http",
    )
)
WORKSPACE = os.environ["WORKSPACE_ID"]


def wait(job_id: str) -> str:
    while True:
        status = client.get_job(job_id, GetJobRequest()).body.status
        print(f"job {job_id} is {status}")
        if status in ("Succeeded", "Failed", "Stopped"):
            return str(status)
        time.sleep(0.2)


client.list_ecs_specs(ListEcsSpecsRequest(page_size=100, page_number=1))
spec = JobSpec(
    type="Worker",
    image="registry.example.com/train:1",
    pod_count=1,
    resource_config=ResourceConfig(cpu="1", memory="1Gi"),
)
request = CreateJobRequest(
    display_name="sdk-models",
    job_type="PyTorchJob",
    job_specs=[spec],
    user_command="echo hello from $RANK",
    workspace_id=WORKSPACE,
    resource_id=os.environ["RESOURCE_ID"],
)
if os.environ.get("DATA_URI"):
    request.data_sources = [
        CreateJobRequestDataSources(uri=os.environ["DATA_URI"], mount_path="/mnt/data", mount_access="RO")
    ]
body = {**request.to_map(), "DisplayName": "sdk-dict"}
ends = [wait(client.create_job(each).body.job_id) for each in (request, CreateJobRequest().from_map(body))]
listed = client.list_jobs(ListJobsRequest(workspace_id=WORKSPACE, display_name="sdk-", page_size=100)).body.jobs
print("listed:", *sorted(job.display_name for job in listed))
sys.exit(0 if ends == ["Succeeded", "Succeeded"] else 1)
