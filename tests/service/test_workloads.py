"""What runs and waits in a quota, and the prices of spot instances, of which a service has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.fakes import ScriptedExecutor
from tests.service.services import job_body

QUOTA = "quota1"


def in_quota(**fields: Any) -> dict[str, Any]:
    config = {"CPU": "1", "Memory": "1Gi"}
    spec = {"Type": "Worker", "PodCount": 1, "Image": "i", "ResourceConfig": config}
    return dlc_body(JobSpecs=[spec], ResourceId=QUOTA, **fields)


def test_jobs_of_both_apis_have_places_in_their_quota(start: Callable[..., Any]) -> None:
    resource = {"ResourceId": QUOTA, "InstanceCount": 1, "InstanceSpec": {"CPU": "1", "Memory": "1Gi"}}
    with start(ScriptedExecutor(), slots=1) as client:
        dlc = DlcClient(client.info)
        running = dlc.create(in_quota())
        dlc.until(running, "Running")
        later = client.create(job_body(ComputeResource=resource))
        sooner = dlc.create(in_quota(Priority=5))
        dlc.create(dlc_body())
        answer = client.get(f"/quotas/{QUOTA}/workloads")
        found = [(each["WorkloadId"], each.get("Position")) for each in answer["Workloads"]]
        assert found == [(running, None), (sooner, 1), (later, 2)]
        assert answer["TotalCount"] == 3
        assert [each.get("GmtDequeuedTime") is None for each in answer["Workloads"]] == [False, True, True]
        first = client.get(f"/quotas/{QUOTA}/workloads", PageSize=1, PageNumber=2)["Workloads"]
        assert [each["WorkloadId"] for each in first] == [sooner]
        ahead = client.get(f"/quotas/{QUOTA}/workloads", BeforeWorkloadId=later, WorkloadIds=f"{sooner},{later}")
        assert [each["WorkloadId"] for each in ahead["Workloads"]] == [sooner]
        assert client.get("/quotas/another/workloads")["Workloads"] == []
        refused = client.call("GET", f"/quotas/{QUOTA}/workloads", PageSize=101)
        assert (refused.status_code, refused.json()["Code"]) == (400, "InvalidParameter")


@pytest.mark.parametrize("query", [{}, {"SpotDuration": 1, "StartTime": "2026-01-01T00:00:00Z"}])
def test_there_are_no_spot_instances(start: Callable[..., Any], query: dict[str, Any]) -> None:
    with start(ScriptedExecutor()) as client:
        answer = client.get("/spots/ecs.gn7i-c8g1.2xlarge/pricehistory", **query)
        assert (answer["SpotPriceHistory"], answer["TotalCount"]) == ([], 0)
